"""The official OpenAI client: tools and structured output."""
import json
import re

import openai
import pydantic

from harness import MODEL, NO_THOUGHT, PERSON, TIME, WEATHER, check, chat, equal, is_in, is_person, is_weather, oai, post, raises, streamed, user


def calls_of(chunks):
    """Tool calls put together from a stream."""
    calls = {}
    for chunk in chunks:
        for choice in chunk.choices:
            for delta in choice.delta.tool_calls or []:
                call = calls.setdefault(delta.index, {"id": None, "name": "", "arguments": ""})
                call["id"] = delta.id or call["id"]
                call["name"] += delta.function.name or ""
                call["arguments"] += delta.function.arguments or ""
    return [calls[i] for i in sorted(calls)]


@check("tools: required gives a call whose arguments follow the schema")
def _():
    choice = chat("Weather in Paris?", tools=[WEATHER, TIME], tool_choice="required", max_tokens=200).choices[0]
    equal(choice.finish_reason, "tool_calls")
    call = choice.message.tool_calls[0]
    assert call.id and call.type == "function"
    is_in(call.function.name, ["get_weather", "get_time"])
    arguments = json.loads(call.function.arguments)
    is_weather(arguments) if call.function.name == "get_weather" else is_in(arguments["zone"], ["UTC", "CET"])


@check("tools: a named function is the one called")
def _():
    for tool, name in ((WEATHER, "get_weather"), (TIME, "get_time")):
        choice = chat("What now?", tools=[WEATHER, TIME], tool_choice={"type": "function", "function": {"name": name}}, max_tokens=200).choices[0]
        equal([c.function.name for c in choice.message.tool_calls], [name] * len(choice.message.tool_calls))
        assert set(json.loads(choice.message.tool_calls[0].function.arguments)) == set(tool["function"]["parameters"]["properties"])


@check("tools: arguments streamed are the whole arguments, whatever the sampling")
def _():
    for seed in (1, 2):
        body = {"tools": [WEATHER], "tool_choice": "required", "max_tokens": 200, "temperature": 1.0, "seed": seed, "extra_body": NO_THOUGHT}
        whole = chat("Weather?", **body).choices[0]
        chunks = list(chat("Weather?", **body, stream=True))
        calls = calls_of(chunks)
        equal([(c["name"], c["arguments"]) for c in calls], [(c.function.name, c.function.arguments) for c in whole.message.tool_calls])
        assert all(c["id"] for c in calls)
        equal([c.choices[0].finish_reason for c in chunks if c.choices and c.choices[0].finish_reason], [whole.finish_reason])
        assert sum(bool(d.tool_calls) for c in chunks for d in [c.choices[0].delta]) > 3, "arguments come in pieces"


@check("tools: parallel_tool_calls = false gives one call")
def _():
    for seed in range(3):
        choice = chat("Weather in Paris and in Rome?", tools=[WEATHER], tool_choice="required", parallel_tool_calls=False, max_tokens=300, temperature=1.0, seed=seed, extra_body=NO_THOUGHT).choices[0]
        equal(len(choice.message.tool_calls), 1)


@check("tools: auto may answer in words, none must")
def _():
    for choice in ("auto", "none"):
        answer = chat("Hello", tools=[WEATHER], tool_choice=choice, max_tokens=24).choices[0]
        if choice == "none":
            assert not answer.message.tool_calls
        assert answer.message.tool_calls or answer.message.content is not None


@check("tools: a thought before a call keeps its budget")
def _():
    body = {"chat_template_kwargs": {"enable_thinking": True}, "thinking_budget": 6}
    choice = chat("Weather?", tools=[WEATHER], tool_choice="required", parallel_tool_calls=False, max_tokens=200, extra_body=body).choices[0]
    assert choice.message.reasoning_content, choice
    is_weather(json.loads(choice.message.tool_calls[0].function.arguments))


@check("tools: a strict tool with auto never breaks its schema")
def _():
    strict = {"type": "function", "function": WEATHER["function"] | {"strict": True}}
    for seed in range(3):
        for call in chat("Weather in Paris?", tools=[strict], tool_choice="auto", max_tokens=120, temperature=1.0, seed=seed).choices[0].message.tool_calls or []:
            is_weather(json.loads(call.function.arguments))


@check("tools: the result goes back and the conversation continues")
def _():
    first = chat("Weather in Paris?", tools=[WEATHER], tool_choice="required", parallel_tool_calls=False, max_tokens=200).choices[0].message
    turns = user("Weather in Paris?") + [first.model_dump(exclude_none=True), {"role": "tool", "tool_call_id": first.tool_calls[0].id, "content": "{\"sky\": \"clear\"}"}]
    answer = chat(messages=turns, tools=[WEATHER], max_tokens=24)
    prompt = post("/apply-template", {"messages": turns, "tools": [WEATHER]})["prompt"]
    is_in("clear", prompt)
    is_in("get_weather", prompt)
    assert answer.usage.prompt_tokens > 60


@check("tools: a broken call in the history does not break the conversation")
def _():
    for broken in ("{\"city\": ", "", "[1, 2]", "null", "not json at all"):
        turns = user("Weather?") + [{"role": "assistant", "content": None, "tool_calls": [{"id": "call_1", "type": "function", "function": {"name": "get_weather", "arguments": broken}}]},
                                    {"role": "tool", "tool_call_id": "call_1", "content": "error"}, {"role": "user", "content": "Try again"}]
        assert chat(messages=turns, tools=[WEATHER], max_tokens=8).choices[0].finish_reason


@check("tools: the client's stream helper puts the call together")
def _():
    strict = {"type": "function", "function": WEATHER["function"] | {"strict": True}}
    with oai.chat.completions.stream(model=MODEL, messages=user("Weather?"), tools=[strict], tool_choice="required", max_tokens=200, temperature=0) as stream:
        for _event in stream:
            pass
        call = stream.get_final_completion().choices[0].message.tool_calls[0]
    is_weather(json.loads(call.function.arguments))


@check("tools: errors name what is wrong with them")
def _():
    raises(openai.BadRequestError, lambda: chat(tool_choice="required"), "tool_choice")
    raises(openai.BadRequestError, lambda: chat(tools=[WEATHER], tool_choice={"type": "function", "function": {"name": "nothing"}}), "tool_choice")
    raises(openai.BadRequestError, lambda: chat(tools=[{"type": "function", "function": {"name": "not a name"}}]), "tools[0].function.name")
    raises(openai.BadRequestError, lambda: chat(tools=[{"type": "function"}]), "tools[0].function")


@check("structured: json_object is an object")
def _():
    for seed in range(3):
        choice = chat("Give JSON", response_format={"type": "json_object"}, max_tokens=120, temperature=1.0, seed=seed, extra_body=NO_THOUGHT).choices[0]
        equal(choice.finish_reason, "stop")
        assert isinstance(json.loads(choice.message.content), dict)


@check("structured: json_schema is followed to the letter")
def _():
    form = {"type": "json_schema", "json_schema": {"name": "person", "schema": PERSON, "strict": True}}
    for seed in range(4):
        choice = chat("Who?", response_format=form, max_tokens=120, temperature=1.0, seed=seed, extra_body=NO_THOUGHT).choices[0]
        equal(choice.finish_reason, "stop")
        is_person(json.loads(choice.message.content))


@check("structured: streamed, the same document")
def _():
    form = {"type": "json_schema", "json_schema": {"name": "person", "schema": PERSON}}
    whole = chat("Who?", response_format=form, max_tokens=120).choices[0].message.content
    equal(streamed(chat("Who?", response_format=form, max_tokens=120, stream=True))[0], whole)


@check("structured: the client's parse() gives the Python object")
def _():
    class Pet(pydantic.BaseModel):
        legs: int
        tame: bool

    answer = oai.chat.completions.parse(model=MODEL, messages=user("A pet?"), response_format=Pet, max_tokens=120, temperature=0)
    assert isinstance(answer.choices[0].message.parsed, Pet)


@check("structured: guided_regex, guided_choice, guided_grammar and guided_json")
def _():
    def text(**fields):
        return chat("Answer", max_tokens=60, temperature=1.0, seed=4, extra_body=NO_THOUGHT | fields).choices[0].message.content

    assert re.fullmatch(r"[0-9]{3}-[a-f]{2}", text(guided_regex=r"[0-9]{3}-[a-f]{2}"))
    is_in(text(guided_choice=["yes", "no", "perhaps"]), ["yes", "no", "perhaps"])
    is_in(text(guided_grammar='root ::= "left" | "right" [0-9]'), ["left"] + [f"right{i}" for i in range(10)])
    is_person(json.loads(text(guided_json=PERSON)))
    is_person(json.loads(text(guided_json=json.dumps(PERSON))))


@check("structured: structured_outputs, and llama-server's grammar and json_schema")
def _():
    def text(**fields):
        return chat("Answer", max_tokens=60, temperature=1.0, seed=4, extra_body=NO_THOUGHT | fields).choices[0].message.content

    assert re.fullmatch(r"[A-Z]{4}", text(structured_outputs={"regex": "[A-Z]{4}"}))
    is_in(text(structured_outputs={"choice": ["red", "blue"]}), ["red", "blue"])
    is_person(json.loads(text(structured_outputs={"json": PERSON})))
    is_in(text(grammar='root ::= "a" | "b"'), ["a", "b"])
    is_person(json.loads(text(json_schema=PERSON)))


@check("structured: a thought comes first, the document after it")
def _():
    body = {"chat_template_kwargs": {"enable_thinking": True}, "thinking_budget": 6}
    message = chat("Who?", response_format={"type": "json_schema", "json_schema": {"name": "p", "schema": PERSON}}, max_tokens=160, extra_body=body).choices[0].message
    assert message.reasoning_content, message
    is_person(json.loads(message.content))


@check("structured: two forms at once, a bad regex, a bad grammar, a bad schema are refused")
def _():
    raises(openai.BadRequestError, lambda: chat(response_format={"type": "json_object"}, extra_body={"guided_regex": "a"}), "guided_regex")
    raises(openai.BadRequestError, lambda: chat(extra_body={"guided_regex": "(a"}), "guided_regex")
    raises(openai.BadRequestError, lambda: chat(extra_body={"guided_grammar": "root ::= nothing"}), "guided_grammar")
    raises(openai.BadRequestError, lambda: chat(response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "nonsense"}}}), "schema")
    raises(openai.BadRequestError, lambda: chat(response_format={"type": "xml"}), "response_format.type")
