"""Clients that we did not write, against our broker: paho-mqtt, aiomqtt, gmqtt, MQTT.js and those of mosquitto."""
