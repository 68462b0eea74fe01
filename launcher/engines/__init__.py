"""From a plan to an engine's command line and environment: pure, one module an engine."""
