"""What is promised beyond MQTT about messages and their delivery. The packages in it do not import each other."""
