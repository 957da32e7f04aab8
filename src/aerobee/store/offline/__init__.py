"""Tools for a store that is not open: they show what it holds, check it, print its messages and repair it."""
