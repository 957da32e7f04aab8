"""How settings are declared, loaded, checked and documented."""
