"""Where sessions and retained messages are kept. Every store passes the same behaviour test and knows no MQTT."""
