"""A server under load and under attack: requests with known answers, clients, a killer, figures."""
