"""The pytest plug-in that `pip install aerobee` registers: fixtures carry the prefix `aerobee_`."""
