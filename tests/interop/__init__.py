"""Clients that we did not write, against our broker: paho-mqtt, aiomqtt, mosquitto_pub and mosquitto_sub."""
