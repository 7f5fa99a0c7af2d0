"""The official OpenAI client: completions, responses, embeddings, and the exceptions it raises."""
import json
import math

import openai

from harness import KEY, MODEL, PERSON, PORT, WEATHER, check, chat, equal, is_in, is_person, is_weather, oai, post, raises, request, user


def complete(prompt="The sea", **more):
    return oai.completions.create(model=MODEL, prompt=prompt, **({"max_tokens": 8, "temperature": 0} | more))


@check("completions: text goes on, 16 tokens unless told")
def _():
    answer = oai.completions.create(model=MODEL, prompt="The sea", temperature=0, extra_body={"ignore_eos": True})
    equal((answer.object, answer.usage.completion_tokens, answer.choices[0].finish_reason), ("text_completion", 16, "length"))
    assert answer.usage.prompt_tokens_details.cached_tokens >= 0


@check("completions: streamed, the same text")
def _():
    whole = complete(max_tokens=24).choices[0].text
    chunks = list(complete(max_tokens=24, stream=True, stream_options={"include_usage": True}))
    equal("".join(c.choices[0].text for c in chunks if c.choices), whole)
    assert chunks[-1].usage.total_tokens > 0


@check("completions: prompts as strings, lists, token arrays and lists of those agree")
def _():
    ids = [post("/tokenize", {"prompt": text})["tokens"] for text in ("The sea", "A hill")]
    texts = [complete(text).choices[0].text for text in ("The sea", "A hill")]
    equal([c.text for c in complete(["The sea", "A hill"]).choices], texts)
    equal(complete(ids[0]).choices[0].text, texts[0])
    answer = complete(ids)
    equal([(c.index, c.text) for c in answer.choices], list(enumerate(texts)))
    equal(answer.usage.prompt_tokens, len(ids[0]) + len(ids[1]))


@check("completions: n per prompt, in order")
def _():
    answer = complete(["The sea", "A hill"], n=2, temperature=1.0, seed=3)
    equal([c.index for c in answer.choices], [0, 1, 2, 3])
    equal(answer.choices[2].text, complete("A hill", temperature=1.0, seed=3).choices[0].text)


@check("completions: best_of gives the likeliest of its answers")
def _():
    best = complete("Once", best_of=4, n=1, temperature=1.3, seed=20, logprobs=0).choices[0]
    alone = [complete("Once", temperature=1.3, seed=20 + i, logprobs=0).choices[0] for i in range(4)]
    mean = [sum(c.logprobs.token_logprobs) / max(1, len(c.logprobs.token_logprobs)) for c in alone if c.finish_reason == "length"]
    is_in(best.text, [c.text for c in alone])
    if len(mean) == 4:
        equal(best.text, alone[mean.index(max(mean))].text)
    raises(openai.BadRequestError, lambda: complete(best_of=3, n=1, stream=True), "best_of")
    raises(openai.BadRequestError, lambda: complete(best_of=1, n=2), "best_of")


@check("completions: echo gives the prompt back, with probabilities when asked")
def _():
    plain = complete().choices[0].text
    equal(complete(echo=True).choices[0].text, "The sea" + plain)
    scored = complete(echo=True, logprobs=2).choices[0].logprobs
    n_prompt = len(post("/tokenize", {"prompt": "The sea"})["tokens"])
    equal(scored.token_logprobs[0], None)
    assert all(x is not None and x <= 0 for x in scored.token_logprobs[1:])
    equal("".join(scored.tokens), "The sea" + plain)
    equal(scored.text_offset[n_prompt], len("The sea"))
    assert len(scored.top_logprobs[n_prompt]) == 2


@check("completions: max_tokens 0 with echo scores the prompt and writes nothing")
def _():
    answer = complete("The sea is wide", max_tokens=0, echo=True, logprobs=0)
    equal((answer.choices[0].text, answer.usage.completion_tokens), ("The sea is wide", 0))
    assert all(x <= 0 for x in answer.choices[0].logprobs.token_logprobs[1:])
    same = complete("The sea is wide", max_tokens=1, echo=True, logprobs=0).choices[0].logprobs.token_logprobs
    for a, b in zip(answer.choices[0].logprobs.token_logprobs[1:], same[1:]):
        assert abs(a - b) < 1e-5, (a, b)


@check("completions: a suffix without the tokens for it is refused in words")
def _():
    raises(openai.BadRequestError, lambda: complete(suffix="end"), "suffix", "middle")


@check("the same prompt through every API gives the same tokens")
def _():
    prompt = post("/apply-template", {"messages": user("Tell me a story")})["prompt"]
    words = complete(prompt, max_tokens=20).choices[0].text
    equal(chat("Tell me a story", max_tokens=20).choices[0].message.content, words)
    equal(oai.responses.create(model=MODEL, input="Tell me a story", max_output_tokens=20, temperature=0).output_text, words)
    claude = post("/v1/messages", {"model": MODEL, "max_tokens": 20, "temperature": 0, "messages": user("Tell me a story")})
    equal(claude["content"][0]["text"], words)
    ollama = post("/api/chat", {"model": MODEL, "stream": False, "messages": user("Tell me a story"), "options": {"temperature": 0, "num_predict": 20}})
    equal(ollama["message"]["content"], words)


@check("responses: text in, text out, with usage")
def _():
    answer = oai.responses.create(model=MODEL, input="Hello", instructions="Be brief.", max_output_tokens=400, temperature=0)
    equal((answer.object, answer.status), ("response", "completed"))
    equal(answer.output[0].type, "message")
    equal(answer.usage.total_tokens, answer.usage.input_tokens + answer.usage.output_tokens)
    assert answer.usage.input_tokens_details.cached_tokens >= 0
    short = oai.responses.create(model=MODEL, input="Tell a story", max_output_tokens=3, temperature=0, extra_body={"ignore_eos": True})
    equal((short.status, short.incomplete_details.reason), ("incomplete", "max_output_tokens"))


@check("responses: the stream's events in order, their text the whole text")
def _():
    whole = oai.responses.create(model=MODEL, input="Hello", max_output_tokens=20, temperature=0)
    events = list(oai.responses.create(model=MODEL, input="Hello", max_output_tokens=20, temperature=0, stream=True))
    equal([e.sequence_number for e in events], list(range(len(events))))
    kinds = [e.type for e in events]
    equal(kinds[:4], ["response.created", "response.in_progress", "response.output_item.added", "response.content_part.added"])
    equal(kinds[-4:-1], ["response.output_text.done", "response.content_part.done", "response.output_item.done"])
    is_in(kinds[-1], ["response.completed", "response.incomplete"])
    equal("".join(e.delta for e in events if e.type == "response.output_text.delta"), whole.output_text)
    equal(events[-1].response.output[0].content[0].text, whole.output_text)
    assert events[-1].response.usage.output_tokens > 0


@check("responses: the client's stream helper")
def _():
    with oai.responses.stream(model=MODEL, input="Hello", max_output_tokens=300, temperature=0) as stream:
        for _event in stream:
            pass
        final = stream.get_final_response()
    equal(final.output_text, oai.responses.create(model=MODEL, input="Hello", max_output_tokens=300, temperature=0).output_text)


@check("responses: a function is called, streamed too, and its output goes back")
def _():
    tool = {"type": "function"} | WEATHER["function"]
    body = {"model": MODEL, "input": "Weather in Paris?", "tools": [tool], "tool_choice": "required", "parallel_tool_calls": False, "max_output_tokens": 200, "temperature": 0}
    answer = oai.responses.create(**body)
    call = next(item for item in answer.output if item.type == "function_call")
    is_weather(json.loads(call.arguments))
    events = list(oai.responses.create(**body, stream=True))
    done = next(e for e in events if e.type == "response.function_call_arguments.done")
    equal("".join(e.delta for e in events if e.type == "response.function_call_arguments.delta"), done.arguments)
    equal(done.arguments, call.arguments)
    turns = user("Weather in Paris?") + [{"type": "function_call", "call_id": call.call_id, "name": call.name, "arguments": call.arguments},
                                         {"type": "function_call_output", "call_id": call.call_id, "output": "clear"}]
    assert oai.responses.create(model=MODEL, input=turns, tools=[tool], max_output_tokens=8, temperature=0).usage.input_tokens > 60


@check("responses: text.format gives a document of the schema")
def _():
    answer = oai.responses.create(model=MODEL, input="Who?", max_output_tokens=120, temperature=0,
                                  text={"format": {"type": "json_schema", "name": "person", "schema": PERSON, "strict": True}})
    is_person(json.loads(answer.output_text))


@check("responses: what is not stored is refused in words")
def _():
    raises(openai.BadRequestError, lambda: oai.responses.create(model=MODEL, input="x", previous_response_id="resp_1"), "previous_response_id", "input")


@check("embeddings: vectors of unit length, the same for the same text")
def _():
    answer = oai.embeddings.create(model=MODEL, input=["the sea", "a hill", "the sea"])
    a, b, c = (d.embedding for d in answer.data)
    equal([d.index for d in answer.data], [0, 1, 2])
    equal(a, c)
    assert a != b and abs(math.fsum(x * x for x in a) - 1) < 1e-3
    as_floats = oai.embeddings.create(model=MODEL, input="the sea", encoding_format="float").data[0].embedding
    assert max(abs(x - y) for x, y in zip(a, as_floats)) < 1e-6
    assert answer.usage.prompt_tokens > 3
    raises(openai.BadRequestError, lambda: oai.embeddings.create(model=MODEL, input="x", dimensions=7), "dimensions")


@check("errors: an unknown model is NotFoundError and says what is served")
def _():
    for call in (lambda: oai.chat.completions.create(model="gpt-9", messages=user("x")), lambda: oai.completions.create(model="gpt-9", prompt="x"),
                 lambda: oai.embeddings.create(model="gpt-9", input="x"), lambda: oai.responses.create(model="gpt-9", input="x")):
        error = raises(openai.NotFoundError, call, "gpt-9", MODEL)
        equal((error.code, error.param), ("model_not_found", "model"))
    raises(openai.NotFoundError, lambda: oai.models.retrieve("gpt-9"), "gpt-9")


@check("errors: a wrong key is AuthenticationError, /health needs none")
def _():
    stranger = openai.OpenAI(base_url=f"http://127.0.0.1:{PORT}/v1", api_key="wrong", max_retries=0)
    raises(openai.AuthenticationError, lambda: stranger.models.list())
    equal(request("GET", "/health", headers={"Authorization": ""})[0], 200)
    assert KEY != "wrong"


@check("errors: every bad field is BadRequestError and names itself")
def _():
    bad = {
        "temperature": [-1, 1e9, "hot", True, []], "top_p": [0, 1.5, "x"], "max_tokens": [0, -3, 1e12, 1.5, "many"], "n": [0, -1, 100000, "two"], "top_logprobs": [-1, 999, "x"],
        "presence_penalty": [1e6], "frequency_penalty": ["x"], "logit_bias": [{"x": 1}, {"5": 1000}, {"99999999": 1}, [[1]], 7], "stop": [7, [7], [""]], "seed": ["x", 1.5],
        "stream": ["yes"], "top_k": [-2, 1.5], "min_p": [-0.1], "typical_p": [0], "repetition_penalty": [0], "min_tokens": [-1, 999999], "stop_token_ids": [[-1], [10**9], "x"],
        "tools": [{}, [1], "x"], "tool_choice": ["maybe", 7], "response_format": ["json", {"type": 1}, {}], "messages": [[], "x", [1], [{}], [{"role": "king", "content": "x"}], [{"role": "user"}]],
        "user": [7], "priority": ["high"], "stream_options": [7], "chat_template_kwargs": [7], "guided_choice": [[], 5], "guided_regex": [5], "mirostat": [3], "dry_multiplier": [-1],
        "xtc_probability": [2], "thinking_budget": ["x"], "modalities": [["audio"]], "prompt_logprobs": [-1, 999], "ignore_eos": ["yes"], "cache_salt": [1],
    }
    n = 0
    for field, values in bad.items():
        for value in values:
            body = {"model": MODEL, "messages": user("x"), "max_tokens": 1} | {field: value}
            if field == "top_logprobs":
                body["logprobs"] = True
            status, _, text = request("POST", "/v1/chat/completions", body)
            equal(status, 400, f"{field} = {value!r}: {text}")
            error = json.loads(text)["error"]
            equal(error["type"], "invalid_request_error")
            is_in(field, f"{error['param']} {error['message']}")
            n += 1
    assert n > 70, n
    raises(openai.BadRequestError, lambda: chat(temperature=-1), "temperature", "-1", "0")


@check("errors: malformed JSON, bad UTF-8, NaN and deep nesting are 400")
def _():
    for raw in (b"", b"{", b"[]", b"7", b'{"a": NaN}', b'{"messages": [}', b'{"messages": "\xff\xfe"}', b'{"model": "\xed\xa0\x80"}', b"[" * 100000, b'{"a":' * 5000 + b"1" + b"}" * 5000,
                b'{"max_tokens": 1e999}', b"\x00\x01\x02"):
        for path in ("/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/embeddings", "/tokenize"):
            status, _, text = request("POST", path, raw=raw)
            equal(status, 400, f"{path} {raw[:40]!r}: {text[:200]}")
            equal(json.loads(text)["error"]["type"], "invalid_request_error")


@check("errors: a prompt over the context is 400 with its length")
def _():
    error = raises(openai.BadRequestError, lambda: chat("word " * 20000), "tokens", "context")
    equal(error.code, "context_length_exceeded")
    raises(openai.BadRequestError, lambda: complete("word " * 20000), "context")
    raises(openai.BadRequestError, lambda: complete([5] * 20000), "context")


@check("errors: images and audio are refused clearly")
def _():
    image = [{"role": "user", "content": [{"type": "text", "text": "What?"}, {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}]}]
    raises(openai.BadRequestError, lambda: chat(messages=image), "messages[0].content[1]", "text alone")
    audio = [{"role": "user", "content": [{"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}]}]
    raises(openai.BadRequestError, lambda: chat(messages=audio), "messages[0].content[0]", "text alone")


@check("errors: unknown paths are 404, wrong methods 405, adapters refused unless the server was told")
def _():
    equal(request("GET", "/v1/nothing")[0], 404)
    equal(request("GET", "/v1/chat/completions")[0], 405)
    status, _, text = request("POST", "/v1/load_lora_adapter", {"lora_name": "a", "lora_path": "b"})
    equal(status, 403)
    assert json.loads(text)["error"]["message"]
