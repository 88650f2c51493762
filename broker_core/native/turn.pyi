class SendTurn:
    def __init__(
        self,
        send: object,
        puts: object,
        store_config: object,
        stats: object,
        tracer: object,
        acknowledge: object,
        clock: object,
    ) -> None: ...
    def serve(self, decoder: object, dispatcher: object, born_host: bytes, room: int) -> bytes: ...

def crc32(data: bytes | bytearray | memoryview) -> int: ...
