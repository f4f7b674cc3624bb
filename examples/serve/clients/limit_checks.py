"""Checks keys, limits, disconnects, slow readers, and the end of the server."""

import concurrent.futures
import json
import socket
import threading
import time

import openai
from openai import OpenAI

from harness import DATA, Checks, Server, image_url, raises

limits = Checks()

FOX = [{"role": "user", "content": "Tell me a story about a fox and a lantern"}]
# Nearly the whole context of the storyteller, without an end: its ends of text are forbidden.
LONG = {"max_tokens": 900, "logit_bias": {"4093": -100, "4095": -100}}


def client(server, **options):
    return OpenAI(base_url=server.url + "/v1", api_key=options.pop("api_key", "none"), max_retries=0, **options)


def create(server, **options):
    return client(server).chat.completions.create(model=server.model, messages=FOX, **options)


def connect(server, body):
    """Sends a request without reading its answer."""
    host, port = server.url.removeprefix("http://").split(":")
    connection = socket.create_connection((host, int(port)))
    data = json.dumps(body).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: {host}\r\ncontent-type: application/json\r\ncontent-length: {len(data)}\r\n\r\n"
    connection.sendall(head.encode() + data)
    return connection


@limits
def keys_are_checked():
    with Server("--api-key", "secret") as server:
        raises(openai.AuthenticationError, lambda: client(server).models.list(), "key")
        assert client(server, api_key="secret").models.list().data
        body = {"model": server.model, "messages": FOX, "max_tokens": 1}
        assert server.post("/v1/messages", body, {"x-api-key": "secret"})[0] == 200
        status, error = server.post("/v1/messages", body, {"x-api-key": "secreT"})
        assert status == 401 and error["error"]["type"] == "authentication_error"
        assert server.get("/metrics")[0] == 401 and server.get("/health")[0] == 200 and server.get("/")[0] == 200


@limits
def names_of_other_machines_are_refused():
    with Server() as server:
        port = server.url.rsplit(":", 1)[1]
        assert server.get("/v1/models", {"host": f"localhost:{port}"})[0] == 200
        status, error = server.get("/v1/models", {"host": f"evil.example:{port}"})
        assert status == 400 and error["error"]["param"] == "host", error
    with Server("--api-key", "secret") as server:
        headers = {"host": "models.example", "authorization": "Bearer secret"}
        assert server.get("/v1/models", headers)[0] == 200


@limits
def malformed_requests_are_errors():
    with Server() as server:
        path = "/v1/chat/completions"
        assert server.post(path, b"{")[0] == 400
        assert server.post(path, b"[]")[0] == 400
        assert server.post(path, b"[" * 100000)[0] == 400
        assert server.post(path, b"\xff")[0] == 400
        assert server.post(path, {}, {"content-type": "text/plain"})[0] == 400
        status, error = server.post(path, {"messages": FOX})
        assert status == 400 and error["error"]["param"] == "model", error
        assert server.get(path)[0] == 405 and server.get("/v2")[0] == 404
        status, error = server.post("/v1/messages", b"{")
        assert status == 400 and error["type"] == "error"


@limits
def bodies_are_bounded():
    with Server() as server:
        content = "x" * (33 << 20)
        status, error = server.post("/v1/chat/completions", {"model": server.model, "messages": [{"role": "user", "content": content}]})
        assert status == 413, (status, error)


@limits
def counts_are_bounded():
    with Server() as server:
        many = FOX * 5000
        call = lambda **options: client(server).chat.completions.create(**{"model": server.model, "messages": FOX, **options})
        raises(openai.BadRequestError, lambda: call(messages=many), "messages")
        raises(openai.BadRequestError, lambda: call(stop=["x"] * 17), "stop")
        raises(openai.BadRequestError, lambda: call(logit_bias={str(i): 1 for i in range(5000)}), "logit_bias")
        raises(openai.BadRequestError, lambda: call(logprobs=True, top_logprobs=21), "top_logprobs")
        raises(openai.BadRequestError, lambda: call(stop=""), "stop")


@limits
def tokens_and_metrics_are_served():
    with Server() as server:
        status, body = server.post("/tokenize", {"content": "Once upon a time", "with_pieces": True})
        assert "".join(token["piece"] for token in body["tokens"]) == "Once upon a time" and body["count"] == len(body["tokens"])
        assert server.post("/tokenize", {"content": "<|im_end|>"})[1]["count"] > 1
        assert server.post("/tokenize", {"content": "<|im_end|>", "add_special": True})[1]["count"] == 1
        assert server.post("/tokenize", {"text": "x"})[0] == 400
        create(server, max_tokens=5)
        assert server.metric("generated_tokens_total") == 5 and server.metric("answers_total") == 1
        assert server.metric("steps_total") >= 5 and server.metric("step_seconds_total") > 0


@limits
def a_disconnect_stops_its_request():
    with Server("--parallel", "1") as server:
        stream = create(server, stream=True, **LONG)
        for _ in range(3):
            next(stream)
        assert server.metric("answers_running") == 1
        stream.close()
        server.wait_for(lambda: server.metric("requests_admitted") == 0, "the end of the request", 5)
        assert server.metric("generated_tokens_total") < 600
        assert create(server, max_tokens=3).usage.completion_tokens == 3


@limits
def a_disconnect_leaves_the_queue():
    with Server("--parallel", "1") as server:
        stream = create(server, stream=True, **LONG)
        waiting = connect(server, {"model": server.model, "messages": FOX, **LONG})
        server.wait_for(lambda: server.metric("requests_admitted") == 2, "a request that waits")
        waiting.close()
        server.wait_for(lambda: server.metric("requests_admitted") <= 1, "one request less", 5)
        stream.close()


@limits
def the_queue_is_bounded():
    with Server("--parallel", "1", "--queue", "1") as server:
        body = {"model": server.model, "messages": FOX, "stream": True, "n": 16, **LONG}
        first, second = connect(server, body), connect(server, body)
        server.wait_for(lambda: server.metric("requests_admitted") == 2, "two requests")
        error = raises(openai.RateLimitError, lambda: create(server, max_tokens=1))
        assert error.response.headers["retry-after"] == "1"
        first.close()
        second.close()
        server.wait_for(lambda: server.metric("requests_admitted") == 0, "no request")
        assert create(server, max_tokens=1)


@limits
def slow_readers_do_not_stop_others():
    with Server("--parallel", "2") as server:
        body = {"model": server.model, "messages": FOX, "stream": True, "logprobs": True, "top_logprobs": 20, "n": 4, **LONG}
        slow = [connect(server, body) for _ in range(4)]
        server.wait_for(lambda: server.metric("answers_total") == 16, "the end of answers that nobody reads", 60)
        assert create(server, max_tokens=3).usage.completion_tokens == 3
        for connection in slow:
            connection.close()


@limits
def the_end_finishes_what_has_begun():
    with Server("--parallel", "1") as server:
        stream = create(server, stream=True, **LONG)
        next(stream)
        server.terminate()
        count = sum(1 for _ in stream)
        assert count > 800, count
        assert server.process.wait(20) == 0


@limits
def the_end_refuses_new_requests():
    with Server("--parallel", "1") as server:
        stream = create(server, stream=True, n=16, **LONG)
        next(stream)
        kept = client(server)
        server.terminate()
        time.sleep(0.2)
        raises(openai.APIError, lambda: kept.chat.completions.create(model=server.model, messages=FOX, max_tokens=1))
        stream.close()
        assert server.process.wait(20) == 0


@limits
def the_end_does_not_wait_for_ever():
    with Server("--parallel", "1", "--drain", "1") as server:
        stream = create(server, stream=True, n=16, **LONG)
        next(stream)
        start = time.monotonic()
        server.terminate()
        error = []

        def read():
            try:
                list(stream)
            except openai.APIError as failure:
                error.append(failure)

        reader = threading.Thread(target=read)
        reader.start()
        assert server.process.wait(20) == 0 and time.monotonic() - start < 10
        reader.join(10)
        assert error and "shutting down" in str(error[0]), error


@limits
def a_storm_of_requests_leaves_nothing_behind():
    with Server("--parallel", "4", "--queue", "200") as server:
        text = create(server, max_tokens=30, temperature=0).choices[0].message.content
        sequences = []

        def one(number):
            if number % 3 == 0:
                # Leaves in the middle.
                stream = create(server, stream=True, n=1 + number % 2, **LONG)
                for _ in range(number % 7 + 1):
                    next(stream)
                stream.close()
            elif number % 3 == 1:
                raises(openai.BadRequestError, lambda: create(server, temperature=-1))
            else:
                answer = create(server, max_tokens=30, temperature=0, n=1 + number % 2)
                assert all(choice.message.content == text for choice in answer.choices)

        for _ in range(2):
            with concurrent.futures.ThreadPoolExecutor(24) as pool:
                list(pool.map(one, range(90)))
            server.wait_for(lambda: server.metric("requests_admitted") == 0, "the end of all requests")
            sequences.append(server.metric("sequences"))
        assert sequences[0] == sequences[1] <= 6, sequences


@limits
def drafts_change_no_text():
    with Server() as plain, Server("--draft", DATA / "storyteller" / "storyteller.gguf") as drafting:
        texts = [create(server, max_tokens=60, temperature=0).choices[0].message.content for server in (plain, drafting)]
        assert texts[0] == texts[1]


@limits
def other_models_are_served():
    with Server("--model", DATA / "models" / "llama.gguf", "--name", "tiny") as server:
        answer = client(server).completions.create(model="tiny", prompt=[1, 2, 3], max_tokens=4)
        assert answer.usage.completion_tokens >= 0 and answer.model == "tiny"
    seer = DATA / "seer"
    with Server("--model", seer / "seer.gguf", "--mmproj", seer / "mmproj-seer.gguf") as server:
        part = {"type": "image_url", "image_url": {"url": image_url("seer/picture.png")}}
        messages = [{"role": "user", "content": [part]}]
        assert client(server).chat.completions.create(model="seer", messages=messages, max_tokens=4).choices
