"""Images that a request only names: fetched from listed hosts, read from listed folders."""
