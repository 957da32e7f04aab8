"""Roots: build each server from its configuration."""
