"""The official Anthropic client."""
import json

import anthropic

from harness import MODEL, PERSON, PORT, check, chat, claude, equal, is_in, is_person, is_weather, raises, request, user

WEATHER = {
    "name": "get_weather",
    "description": "The weather of a city",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string", "enum": ["Paris", "Rome"]}, "days": {"type": "integer", "minimum": 1, "maximum": 9}},
                     "required": ["city", "days"], "additionalProperties": False},
}


GREEDY = {"temperature": 0}                # which this client no longer has a parameter for


def message(text="Hello", **more):
    return claude.messages.create(model=MODEL, **({"max_tokens": 16, "messages": user(text), "extra_body": GREEDY} | more))


@check("anthropic: a message with content, stop reason and usage")
def _():
    answer = message()
    equal((answer.type, answer.role, answer.model, answer.content[0].type), ("message", "assistant", MODEL, "text"))
    is_in(answer.stop_reason, ["end_turn", "max_tokens"])
    assert answer.usage.input_tokens + answer.usage.cache_read_input_tokens > 3 and answer.usage.output_tokens > 0
    equal(answer.content[0].text, chat().choices[0].message.content)


@check("anthropic: the system prompt counts, as text and as blocks")
def _():
    turns = [{"role": "system", "content": "Be kind."}] + user("Hello")
    words = chat(messages=turns).choices[0].message.content
    equal(message(system="Be kind.").content[0].text, words)
    equal(message(system=[{"type": "text", "text": "Be kind."}]).content[0].text, words)


@check("anthropic: max_tokens and stop sequences name themselves")
def _():
    whole = message("Tell me a story", max_tokens=40).content[0].text
    short = message("Tell me a story", max_tokens=4)
    equal((short.stop_reason, short.usage.output_tokens), ("max_tokens", 4))
    stop = whole[12:16]
    cut = message("Tell me a story", max_tokens=40, stop_sequences=[stop])
    equal((cut.stop_reason, cut.stop_sequence, cut.content[0].text), ("stop_sequence", stop, whole[: whole.index(stop)]))


@check("anthropic: the stream's events in order, their text the whole text")
def _():
    events = list(message("Tell me a story", stream=True))
    kinds = [e.type for e in events if e.type != "ping"]
    equal(kinds[:2], ["message_start", "content_block_start"])
    equal(kinds[-3:], ["content_block_stop", "message_delta", "message_stop"])
    equal(set(kinds[2:-3]), {"content_block_delta"})
    equal("".join(e.delta.text for e in events if e.type == "content_block_delta"), message("Tell me a story").content[0].text)
    delta = next(e for e in events if e.type == "message_delta")
    equal(delta.usage.output_tokens, message("Tell me a story").usage.output_tokens)
    is_in(delta.delta.stop_reason, ["end_turn", "max_tokens"])


@check("anthropic: the client's stream helper")
def _():
    with claude.messages.stream(model=MODEL, max_tokens=16, messages=user("Hello"), extra_body=GREEDY) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    equal(text, message().content[0].text)
    equal(final.content[0].text, text)


@check("anthropic: a tool is used, its input follows the schema")
def _():
    for choice in ({"type": "any"}, {"type": "tool", "name": "get_weather"}):
        answer = message("Weather in Paris?", tools=[WEATHER], tool_choice=choice, max_tokens=200)
        equal(answer.stop_reason, "tool_use")
        use = next(b for b in answer.content if b.type == "tool_use")
        assert use.id.startswith("toolu_") and use.name == "get_weather"
        is_weather(use.input)


@check("anthropic: streamed input is the whole input")
def _():
    body = {"tools": [WEATHER], "tool_choice": {"type": "any", "disable_parallel_tool_use": True}, "max_tokens": 200}
    whole = next(b for b in message("Weather?", **body).content if b.type == "tool_use")
    with claude.messages.stream(model=MODEL, messages=user("Weather?"), extra_body=GREEDY, **body) as stream:
        pieces = [e.delta.partial_json for e in stream if e.type == "content_block_delta" and e.delta.type == "input_json_delta"]
        final = next(b for b in stream.get_final_message().content if b.type == "tool_use")
    equal(json.loads("".join(pieces)), whole.input)
    equal(final.input, whole.input)
    assert len(pieces) > 3


@check("anthropic: a tool's result goes back")
def _():
    use = next(b for b in message("Weather in Paris?", tools=[WEATHER], tool_choice={"type": "any", "disable_parallel_tool_use": True}, max_tokens=200).content if b.type == "tool_use")
    turns = user("Weather in Paris?") + [{"role": "assistant", "content": [{"type": "tool_use", "id": use.id, "name": use.name, "input": use.input}]},
                                         {"role": "user", "content": [{"type": "tool_result", "tool_use_id": use.id, "content": [{"type": "text", "text": "clear"}]}]}]
    assert claude.messages.count_tokens(model=MODEL, messages=turns, tools=[WEATHER]).input_tokens > 60
    assert message(messages=turns, tools=[WEATHER]).content


@check("anthropic: thinking comes as a block of its own, streamed alike")
def _():
    body = {"thinking": {"type": "enabled", "budget_tokens": 8}, "max_tokens": 40}
    answer = message("What is 2+2?", **body)
    equal(answer.content[0].type, "thinking")
    assert answer.content[0].thinking
    events = list(message("What is 2+2?", stream=True, **body))
    equal("".join(e.delta.thinking for e in events if e.type == "content_block_delta" and e.delta.type == "thinking_delta"), answer.content[0].thinking)


@check("anthropic: the last assistant turn is continued")
def _():
    turns = user("Tell a story") + [{"role": "assistant", "content": "Once upon a time there was a"}]
    same = chat(messages=turns, extra_body={"continue_final_message": True, "add_generation_prompt": False}).choices[0].message.content
    equal(message(messages=turns).content[0].text, same)


@check("anthropic: output_config gives a document of the schema")
def _():
    answer = message("Who?", max_tokens=120, output_config={"format": {"type": "json_schema", "schema": PERSON}})
    is_person(json.loads(answer.content[0].text))


@check("anthropic: count_tokens is what a message costs")
def _():
    counted = claude.messages.count_tokens(model=MODEL, messages=user("Hello there"), system="Be kind.").input_tokens
    usage = message("Hello there", system="Be kind.").usage
    equal(counted, usage.input_tokens + usage.cache_read_input_tokens)


@check("anthropic: errors have its types and its shape")
def _():
    raises(anthropic.NotFoundError, lambda: claude.messages.create(model="gpt-9", max_tokens=5, messages=user("x")), "gpt-9")
    raises(anthropic.BadRequestError, lambda: message(extra_body={"temperature": -1}), "temperature")
    raises(anthropic.BadRequestError, lambda: message(messages=[]), "messages")
    raises(anthropic.BadRequestError, lambda: message(messages=[{"role": "user", "content": [{"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA"}}]}]), "text alone")
    raises(anthropic.AuthenticationError, lambda: anthropic.Anthropic(base_url=f"http://127.0.0.1:{PORT}", api_key="wrong", max_retries=0).messages.create(model=MODEL, max_tokens=1, messages=user("x")))
    status, _, text = request("POST", "/v1/messages", {"model": MODEL, "messages": user("x")})
    body = json.loads(text)
    equal((status, body["type"], body["error"]["type"]), (400, "error", "invalid_request_error"))
    is_in("max_tokens", body["error"]["message"])
