"""A store of checkpoints in another process."""

from __future__ import annotations

import multiprocessing

from slackwater.checkpoints import GoingBackwards, open_store


class Peer:
    """Does what it is told, in a process of its own, with the database at `url`."""

    def __init__(self, url):
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=serve, args=(url, theirs), daemon=True)
        self._process.start()
        theirs.close()

    def close(self):
        self._pipe.send(None)
        self._process.join()
        self._pipe.close()

    def __getattr__(self, name):
        def call(*arguments):
            self._pipe.send((name, arguments))
            refused, answer = self._pipe.recv()
            if refused is not None:
                raise GoingBackwards(*refused)
            return answer

        return call


def serve(url, pipe):
    with open_store(url) as store:
        while (told := pipe.recv()) is not None:
            name, arguments = told
            try:
                pipe.send((None, getattr(store, name)(*arguments)))
            except GoingBackwards as error:
                pipe.send(((error.group, error.partition, error.proposed, error.newest), None))


class InTurns:
    """Two stores of one database, of which `choose` says which one is asked."""

    def __init__(self, stores, choose):
        self._stores = stores
        self._choose = choose

    def __getattr__(self, name):
        return getattr(self._stores[self._choose()], name)
