"""The commands of Mosquitto's dynamic security plugin, by MQTT and over HTTP. What they change is in `security`."""
