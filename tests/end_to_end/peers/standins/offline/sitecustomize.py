"""Keeps a program and its Python children off the network, and notes in $PEERS_CALLED_OUT whom they asked for."""

import os
import socket


def _refuse(whom):
    with open(os.environ["PEERS_CALLED_OUT"], "a", encoding="utf-8") as notes:
        notes.write(f"{whom}\n")
    raise OSError(f"the tests run offline, and {whom} was asked for")


def _lookup(host, *_, **__):
    _refuse(host)


class _OfflineSocket(socket.socket):
    def connect(self, address):
        if self.family in (socket.AF_INET, socket.AF_INET6):
            _refuse(address)
        return super().connect(address)

    def connect_ex(self, address):
        return self.connect(address)


socket.getaddrinfo = socket.gethostbyname = _lookup
socket.socket = _OfflineSocket
