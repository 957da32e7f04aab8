"""`python -m aerobee` is the `aerobee` command."""

from aerobee.cli.main import main

if __name__ == "__main__":
    main(prog_name="aerobee")
