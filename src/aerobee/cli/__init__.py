"""Commands: argument parsing and printing, one file per command group."""
