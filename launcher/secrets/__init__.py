"""What is a secret, by its name, its shape or its value: one answer for lint, plan and the log."""
