"""A plan as text, JSON and log lines; one setting explained."""
