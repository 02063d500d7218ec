"""The topics of a broker for people and programs: what they are for, whose they are, and what their messages hold.

`entries` puts together what the configuration, the topics made over HTTP and the schema registry say; `asyncapi`
writes it as an AsyncAPI document. Nothing here changes anything.
"""
