"""Makes `python -m mqttlite` the same as the command `mqttlite`."""

from mqttlite.cli.main import main

if __name__ == "__main__":
    main(prog_name="mqttlite")
