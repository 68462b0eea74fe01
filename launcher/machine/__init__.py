"""The only code that asks the machine what it has."""
