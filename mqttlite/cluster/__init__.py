"""Several workers as one broker: how what they have for each other travels."""
