"""Proof that an engine understands our command lines as the plan means them, without a GPU."""
