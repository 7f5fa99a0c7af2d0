"""The official OpenAI client: chat, streams, sampling, probabilities, several answers."""
import json
import math

from harness import MODEL, check, chat, equal, get, is_in, oai, post, streamed, user


@check("models: the list names the model with its context")
def _():
    models = oai.models.list().data
    is_in(MODEL, [m.id for m in models])
    assert models[0].max_model_len >= 1024
    equal(oai.models.retrieve(MODEL).id, MODEL)


@check("chat: an answer with role, finish reason and usage")
def _():
    answer = chat()
    equal(answer.object, "chat.completion")
    equal(answer.model, MODEL)
    equal(answer.choices[0].message.role, "assistant")
    is_in(answer.choices[0].finish_reason, ["stop", "length"])
    usage = answer.usage
    equal(usage.total_tokens, usage.prompt_tokens + usage.completion_tokens)
    assert usage.prompt_tokens > 3 and 1 <= usage.completion_tokens <= 16
    assert usage.prompt_tokens_details.cached_tokens >= 0


@check("chat: max_tokens and max_completion_tokens end with `length`")
def _():
    for name in ("max_tokens", "max_completion_tokens"):
        answer = oai.chat.completions.create(model=MODEL, messages=user("Tell a long story"), temperature=0, **{name: 5}, extra_body={"ignore_eos": True})
        equal((answer.choices[0].finish_reason, answer.usage.completion_tokens), ("length", 5))


@check("stream: the pieces are the whole answer")
def _():
    whole = chat("Tell me a story", max_tokens=40).choices[0]
    text, finish, chunks = streamed(chat("Tell me a story", max_tokens=40, stream=True))
    equal((text, finish), (whole.message.content, whole.finish_reason))
    assert len(chunks) > 5
    equal(chunks[0].choices[0].delta.role, "assistant")
    equal(len({c.id for c in chunks}), 1, "ids")
    assert all(c.object == "chat.completion.chunk" for c in chunks)


@check("stream: usage comes when asked for, last and once")
def _():
    chunks = list(chat(stream=True, stream_options={"include_usage": True}))
    equal([i for i, c in enumerate(chunks) if c.usage], [len(chunks) - 1])
    equal(chunks[-1].choices, [])
    assert chunks[-1].usage.completion_tokens > 0
    assert chunks[-1].usage.prompt_tokens_details.cached_tokens >= 0
    assert not any(c.usage for c in chat(stream=True))


@check("stream: the client's own stream helper sees the same")
def _():
    with oai.chat.completions.stream(model=MODEL, messages=user("Hello"), max_tokens=16, temperature=0) as stream:
        for _event in stream:
            pass
        final = stream.get_final_completion()
    equal(final.choices[0].message.content, chat().choices[0].message.content)


@check("seed: the same seed gives the same text, another one another")
def _():
    texts = [chat("Once upon a time", temperature=1.5, seed=seed, max_tokens=30).choices[0].message.content for seed in (7, 7, 8)]
    equal(texts[0], texts[1])
    assert texts[0] != texts[2]


@check("greedy: temperature 0 and top_k 1 agree")
def _():
    equal(chat(temperature=1, extra_body={"top_k": 1}).choices[0].message.content, chat(temperature=0).choices[0].message.content)


@check("stop: the text ends before the string, also in a stream")
def _():
    whole = chat("Tell me a story", max_tokens=40).choices[0].message.content
    stop = whole[12:16]
    cut = chat("Tell me a story", max_tokens=40, stop=[stop, "\x07never"])
    equal((cut.choices[0].message.content, cut.choices[0].finish_reason), (whole[: whole.index(stop)], "stop"))
    text, finish, _ = streamed(chat("Tell me a story", max_tokens=40, stop=stop, stream=True))
    equal((text, finish), (whole[: whole.index(stop)], "stop"))


@check("stop: include_stop_str_in_output keeps it")
def _():
    whole = chat("Tell me a story", max_tokens=40).choices[0].message.content
    stop = whole[12:16]
    kept = chat("Tell me a story", max_tokens=40, stop=stop, extra_body={"include_stop_str_in_output": True}).choices[0].message.content
    equal(kept, whole[: whole.index(stop) + len(stop)])


@check("stop_token_ids: a token ends the answer and is not shown")
def _():
    body = {"model": MODEL, "messages": user("Tell me a story"), "max_tokens": 12, "temperature": 0, "return_token_ids": True}
    ids = post("/v1/chat/completions", body)["choices"][0]["token_ids"]
    at = next(i for i in range(2, len(ids)) if ids[i] not in ids[:i])
    cut = post("/v1/chat/completions", body | {"stop_token_ids": [ids[at]]})["choices"][0]
    equal((cut["token_ids"], cut["finish_reason"]), (ids[:at], "stop"))


@check("min_tokens and ignore_eos: the answer goes on")
def _():
    equal(chat("Say ok.", max_tokens=200, extra_body={"ignore_eos": True}).usage.completion_tokens, 200)
    assert chat("Say ok.", max_tokens=60, extra_body={"min_tokens": 50}).usage.completion_tokens >= 50


@check("n: several answers, the first as alone, told apart by index")
def _():
    answer = chat("Once", n=3, temperature=1.2, seed=5, max_tokens=12)
    equal([c.index for c in answer.choices], [0, 1, 2])
    texts = [c.message.content for c in answer.choices]
    assert len(set(texts)) > 1, texts
    for i, text in enumerate(texts):
        equal(chat("Once", temperature=1.2, seed=5 + i, max_tokens=12).choices[0].message.content, text, f"choice {i} alone")
    assert answer.usage.prompt_tokens < 60 and answer.usage.completion_tokens >= 3


@check("n: streamed, the same texts under the same indices")
def _():
    whole = [c.message.content for c in chat("Once", n=3, temperature=1.2, seed=5, max_tokens=12).choices]
    parts = ["", "", ""]
    finishes = 0
    for chunk in chat("Once", n=3, temperature=1.2, seed=5, max_tokens=12, stream=True):
        for choice in chunk.choices:
            parts[choice.index] += choice.delta.content or ""
            finishes += choice.finish_reason is not None
    equal((parts, finishes), (whole, 3))


@check("logprobs: every token with its bytes and the likeliest beside it")
def _():
    answer = chat(logprobs=True, top_logprobs=3, max_tokens=8).choices[0]
    tokens = answer.logprobs.content
    equal(b"".join(bytes(t.bytes) for t in tokens).decode(), answer.message.content)
    for token in tokens:
        equal(len(token.top_logprobs), 3)
        assert token.logprob <= 0
        assert abs(token.top_logprobs[0].logprob - token.logprob) < 1e-6, "greedy takes the likeliest"
        assert sum(math.exp(t.logprob) for t in token.top_logprobs) <= 1.001


@check("logprobs: the stream has the same ones")
def _():
    whole = chat(logprobs=True, top_logprobs=2, max_tokens=8).choices[0].logprobs.content
    got = []
    for chunk in chat(logprobs=True, top_logprobs=2, max_tokens=8, stream=True):
        for choice in chunk.choices:
            got += choice.logprobs.content if choice.logprobs else []
    equal([(t.token, t.logprob) for t in got], [(t.token, t.logprob) for t in whole])


@check("logit_bias: a token that is banned does not come")
def _():
    body = {"model": MODEL, "messages": user("Hello"), "max_tokens": 1, "temperature": 0, "return_token_ids": True}
    first = post("/v1/chat/completions", body)["choices"][0]["token_ids"]
    other = post("/v1/chat/completions", body | {"logit_bias": {str(first[0]): -100}})["choices"][0]["token_ids"]
    assert first != other
    equal(post("/v1/chat/completions", body | {"logit_bias": [[first[0], False]]})["choices"][0]["token_ids"], other)


@check("samplers: DRY, XTC, mirostat, top-n-sigma, typical, penalties are taken")
def _():
    plain = chat("Tell a story", temperature=0.9, seed=3, max_tokens=40).choices[0].message.content
    changed = 0
    for fields in ({"dry_multiplier": 2.0, "dry_allowed_length": 1, "dry_base": 2}, {"xtc_probability": 1.0, "xtc_threshold": 0.05}, {"mirostat": 2, "mirostat_tau": 2.0},
                   {"top_n_sigma": 0.5}, {"typical_p": 0.3}, {"repetition_penalty": 1.8}, {"min_p": 0.5}, {"presence_penalty": 2.0, "frequency_penalty": 2.0}):
        text = chat("Tell a story", temperature=0.9, seed=3, max_tokens=40, extra_body=fields).choices[0].message.content
        equal(chat("Tell a story", temperature=0.9, seed=3, max_tokens=40, extra_body=fields).choices[0].message.content, text, f"{fields} twice")
        changed += text != plain
    assert changed >= 6, f"only {changed} of 8 samplers changed the answer"


@check("defaults: generation_config.json decides where the request says nothing")
def _():
    params = get("/props")["default_generation_settings"]["params"]
    body = {"model": MODEL, "messages": user("Once upon a time"), "seed": 11, "max_tokens": 24}
    says = {name: params[name] for name in ("temperature", "top_k", "top_p", "min_p")}
    equal(post("/v1/chat/completions", body)["choices"][0]["message"], post("/v1/chat/completions", body | says)["choices"][0]["message"])


@check("content parts: a list of text parts is text")
def _():
    parts = [{"role": "user", "content": [{"type": "text", "text": "Hel"}, {"type": "text", "text": "lo"}]}]
    equal(chat(messages=parts).choices[0].message.content, chat("Hel\nlo").choices[0].message.content)


@check("conversation: earlier turns count, and their prefix is cached")
def _():
    first = user("Tell me about the sea. " * 20)
    answer = chat(messages=first, max_tokens=24)
    turns = first + [{"role": "assistant", "content": answer.choices[0].message.content}, {"role": "user", "content": "And more?"}]
    second = chat(messages=turns)
    assert second.usage.prompt_tokens > answer.usage.prompt_tokens
    assert second.usage.prompt_tokens_details.cached_tokens >= 64, second.usage


@check("cache_salt: another salt shares nothing")
def _():
    text = "The wind and the waves and the rocks. " * 20
    chat(text, extra_body={"cache_salt": "one"})
    assert chat(text, extra_body={"cache_salt": "one"}).usage.prompt_tokens_details.cached_tokens > 0
    equal(chat(text, extra_body={"cache_salt": "two"}).usage.prompt_tokens_details.cached_tokens, 0)


@check("a cached prefix changes nothing in the answer")
def _():
    text = "There was a lighthouse on a rock. " * 12
    fresh = chat(text, max_tokens=32, extra_body={"cache_salt": "fresh one"})
    equal(fresh.usage.prompt_tokens_details.cached_tokens, 0)
    again = chat(text, max_tokens=32, extra_body={"cache_salt": "fresh one"})
    assert again.usage.prompt_tokens_details.cached_tokens > 0
    equal(again.choices[0].message.content, fresh.choices[0].message.content)


@check("continue_final_message: the assistant's words go on")
def _():
    turns = user("Tell a story") + [{"role": "assistant", "content": "Once upon a time there was a"}]
    prompt = post("/apply-template", {"messages": turns, "continue_final_message": True})["prompt"]
    assert prompt.endswith("Once upon a time there was a"), prompt
    answer = chat(messages=turns, extra_body={"continue_final_message": True, "add_generation_prompt": False})
    whole = oai.completions.create(model=MODEL, prompt=prompt, max_tokens=16, temperature=0)
    equal(answer.choices[0].message.content, whole.choices[0].text)


@check("thinking: reasoning apart from content, streamed alike, within its budget")
def _():
    body = {"chat_template_kwargs": {"enable_thinking": True}, "thinking_budget": 8}
    message = chat("What is 2+2?", max_tokens=40, extra_body=body).choices[0].message
    assert message.reasoning_content and message.reasoning == message.reasoning_content, message
    assert "<think>" not in (message.content or "") and "</think>" not in (message.content or ""), message
    chunks = list(chat("What is 2+2?", max_tokens=40, extra_body=body, stream=True))
    deltas = [c.choices[0].delta for c in chunks if c.choices]
    equal("".join(getattr(d, "reasoning_content", None) or "" for d in deltas), message.reasoning_content)
    equal("".join(d.content or "" for d in deltas), message.content or "")
    usage = chat("What is 2+2?", max_tokens=40, extra_body=body).usage
    assert 0 < usage.completion_tokens_details.reasoning_tokens <= 9, usage


@check("thinking: include_reasoning = false leaves it out")
def _():
    body = {"chat_template_kwargs": {"enable_thinking": True}, "thinking_budget": 8}
    with_it = chat("What is 2+2?", max_tokens=40, extra_body=body).choices[0].message
    without = chat("What is 2+2?", max_tokens=40, extra_body=body | {"include_reasoning": False}).choices[0].message
    equal((without.content, getattr(without, "reasoning_content", None)), (with_it.content, None))


@check("prompt_logprobs: one entry for each token of the prompt")
def _():
    answer = chat(max_tokens=1, extra_body={"prompt_logprobs": 1})
    entries = answer.prompt_logprobs
    equal(len(entries), answer.usage.prompt_tokens)
    equal(entries[0], None)
    assert all(entry and all(v["logprob"] <= 0 for v in entry.values()) for entry in entries[1:])


@check("unusual text: any language, emoji and control characters come through")
def _():
    text = "Grüße 你好 مرحبا 🦊👩‍👩‍👧 \u0000\u001f end"
    equal(post("/detokenize", {"tokens": post("/tokenize", {"content": text})["tokens"]})["content"], text)
    assert chat(text).usage.prompt_tokens > 10


@check("with_raw_response: a request id comes back as a header")
def _():
    raw = oai.chat.completions.with_raw_response.create(model=MODEL, messages=user("Hi"), max_tokens=1, extra_headers={"X-Request-Id": "conformance-7"})
    equal(raw.headers["x-request-id"], "conformance-7")
    is_in("conformance-7", json.loads(raw.text if isinstance(raw.text, str) else raw.text())["id"])
