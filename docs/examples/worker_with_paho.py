"""Work distribution with paho: any MQTT client is a worker, in MQTT 5.0 and 3.1.1.

mqttlite serve --config docs/examples/broker.toml
python docs/examples/worker_with_paho.py
"""

import sys
import threading

import paho.mqtt.client as paho
from paho.mqtt import publish
from paho.mqtt.enums import CallbackAPIVersion

JOBS = 10
done: list[str] = []
finished = threading.Event()


def on_connect(client: paho.Client, _data: object, _flags: object, _reason: object, _properties: object) -> None:
    client.subscribe("$queue/jobs", qos=1)


def on_message(client: paho.Client, _data: object, message: paho.MQTTMessage) -> None:
    done.append(message.payload.decode())  # the work; without ack, the job goes to another worker after its deadline
    client.ack(message.mid, message.qos)
    if len(done) == JOBS:
        finished.set()


def main(port: int) -> None:
    worker = paho.Client(CallbackAPIVersion.VERSION2, protocol=paho.MQTTv311, manual_ack=True)
    worker.on_connect = on_connect
    worker.on_message = on_message
    worker.connect("localhost", port)
    worker.loop_start()
    jobs: list[tuple[str, str, int, bool]] = [("work/print", f"page {number}", 1, False) for number in range(JOBS)]
    publish.multiple(jobs, hostname="localhost", port=port)  # another client, as it would be in earnest
    assert finished.wait(30), "the jobs were not done"
    worker.disconnect()
    worker.loop_stop()
    print(f"{len(done)} jobs done, the last one was {done[-1]}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1883)
