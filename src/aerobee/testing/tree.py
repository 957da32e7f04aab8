"""The directories of a recording disk: names as the process sees them, names that are durable, and the operations
between the two."""

from __future__ import annotations

import errno as errnos
import os
from collections.abc import Collection, Iterator, Mapping, Sequence

from aerobee.testing.platter import Directory, Inode, NameChange, Node

Entry = tuple[Directory, str, Node | None]


class Tree:
    """The directories from the root. `seq` numbers every change of the disk, of names and of files."""

    def __init__(self) -> None:
        self.root = Directory()
        self.seq = 0
        self.changes: list[NameChange] = []

    def find(self, path: str) -> Node | None:
        node: Node | None = self.root
        for name in _names(path):
            if not isinstance(node, Directory):
                return None
            node = node.names.get(name)
        return node

    def parent(self, path: str) -> tuple[Directory, str]:
        """Return the directory of a path, which must exist, and the last name; for the root, itself and no name."""
        names = _names(path)
        node: Node | None = self.root
        for name in names[:-1]:
            node = node.names.get(name) if isinstance(node, Directory) else None
        if not isinstance(node, Directory):
            raise os_error(errnos.ENOENT if node is None else errnos.ENOTDIR, path)
        return node, names[-1] if names else ""

    def files(self) -> Iterator[tuple[str, Inode]]:
        """Yield every file with its path, sorted within each directory."""
        yield from _files(self.root, "")

    def make_dirs(self, path: str) -> None:
        node: Directory = self.root
        for name in _names(path):
            child = node.names.get(name)
            if isinstance(child, Inode):
                raise os_error(errnos.EEXIST, path)
            if child is None:
                child = Directory()
                self.change(f"make_dirs {path}", (node, name, child))
            node = child

    def change(self, what: str, *entries: Entry) -> None:
        """Do one operation. It is visible at once and durable when each directory that it touches is synced."""
        for directory, name, node in entries:
            _set(directory.names, name, node)
        self.changes.append(NameChange(self.seq, what, list(entries)))
        self.seq += 1

    def settle(self, directory: Directory, *, is_durable: bool) -> None:
        """Make the operations that wait for this directory durable, or forget them.

        The other half of a move between two directories goes on waiting for its own directory.
        """
        left = []
        for change in self.changes:
            mine = [entry for entry in change.entries if entry[0] is directory]
            if is_durable:
                _apply_durably(mine)
            others = [entry for entry in change.entries if entry[0] is not directory]
            if others:
                left.append(change._replace(entries=others) if mine else change)
        self.changes = left

    def settle_all(self) -> None:
        for change in self.changes:
            _apply_durably(change.entries)
        self.changes.clear()

    def after_cut(self, kept: Collection[int], torn: Mapping[int, bytes]) -> Tree:
        """Return the directories and files that the next start finds when the changes with these numbers survive."""
        touched: dict[Directory, dict[str, Node]] = {}
        for change in self.changes:
            if change.seq in kept:
                for directory, name, node in change.entries:
                    _set(touched.setdefault(directory, dict(directory.durable)), name, node)
        made: dict[Node, Node] = {}

        def rebuild(directory: Directory) -> Directory:
            new = Directory()
            made[directory] = new
            for name, node in touched.get(directory, directory.durable).items():
                found = made.get(node)
                if found is None:
                    if isinstance(node, Inode):
                        found = made[node] = node.after_cut(kept, torn)
                    else:
                        found = rebuild(node)
                new.durable[name] = found
            new.names = dict(new.durable)
            return new

        tree = Tree()
        tree.root = rebuild(self.root)
        return tree

    def after_kill(self) -> tuple[Tree, dict[Inode, Inode]]:
        """Copy everything, what waits for a sync included; return the copy and which file became which."""
        directories: dict[Directory, Directory] = {}
        inodes: dict[Inode, Inode] = {}

        def copy(node: Node) -> Node:
            if isinstance(node, Inode):
                if node not in inodes:
                    inodes[node] = node.after_kill()
                return inodes[node]
            return copy_directory(node)

        def copy_directory(directory: Directory) -> Directory:
            if directory not in directories:
                new = directories[directory] = Directory()
                new.names = {name: copy(child) for name, child in directory.names.items()}
                new.durable = {name: copy(child) for name, child in directory.durable.items()}
            return directories[directory]

        tree = Tree()
        tree.root = copy_directory(self.root)
        tree.seq = self.seq
        for change in self.changes:
            entries = [
                (copy_directory(where), name, None if node is None else copy(node))
                for where, name, node in change.entries
            ]
            tree.changes.append(change._replace(entries=entries))
        return tree, inodes


def os_error(errno: int, path: str) -> OSError:
    return OSError(errno, os.strerror(errno), path)


def _names(path: str) -> list[str]:
    return [name for name in path.split("/") if name]


def _set(names: dict[str, Node], name: str, node: Node | None) -> None:
    if node is None:
        names.pop(name, None)
    else:
        names[name] = node


def _apply_durably(entries: Sequence[Entry]) -> None:
    for directory, name, node in entries:
        _set(directory.durable, name, node)


def _files(directory: Directory, path: str) -> Iterator[tuple[str, Inode]]:
    for name in sorted(directory.names):
        node = directory.names[name]
        if isinstance(node, Inode):
            yield f"{path}/{name}", node
        else:
            yield from _files(node, f"{path}/{name}")
