"""The decisions, pure: settings, checkpoint facts, machine and support table in, plan out."""
