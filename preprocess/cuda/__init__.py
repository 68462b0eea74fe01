"""Images on a CUDA device: torch only here, and only in workers that were planned for one."""
