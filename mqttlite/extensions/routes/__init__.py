"""Routes: messages that pass a filter are sent to another topic, too."""
