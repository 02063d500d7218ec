"""`mqttlite import`: the configuration of Mosquitto as one of ours."""
