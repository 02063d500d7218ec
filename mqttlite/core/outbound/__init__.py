"""What waits for a link, and the form in which it leaves."""
