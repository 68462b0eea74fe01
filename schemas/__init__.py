"""What is said between the parts: settings, plan, worker spec, messages, errors.

Imports pydantic and the standard library only.
"""
