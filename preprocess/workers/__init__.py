"""The worker processes and their parent's side: fork server, pool, memory, frames."""
