"""A few checks on a model that understands: smollm2, where its files are here."""
import json

from harness import MODEL, PERSON, WEATHER, check, chat, claude, equal, is_in, is_person, is_weather, streamed, user


@check("smollm2: it knows the capital of France")
def _():
    is_in("Paris", chat("What is the capital of France?", max_tokens=40).choices[0].message.content)


@check("smollm2: streamed as whole")
def _():
    equal(streamed(chat("Count to ten.", max_tokens=60, stream=True))[0], chat("Count to ten.", max_tokens=60).choices[0].message.content)


@check("smollm2: a document of the schema")
def _():
    form = {"type": "json_schema", "json_schema": {"name": "person", "schema": PERSON}}
    is_person(json.loads(chat("Describe your pet as JSON with name, age and kind.", response_format=form, max_tokens=120).choices[0].message.content))


@check("smollm2: a tool, though its template knows none")
def _():
    choice = chat("What is the weather in Paris for the next 3 days?", tools=[WEATHER], tool_choice="required", max_tokens=200).choices[0]
    equal(choice.finish_reason, "tool_calls")
    is_weather(json.loads(choice.message.tool_calls[0].function.arguments))


@check("smollm2: Anthropic's client gets the same words")
def _():
    answer = claude.messages.create(model=MODEL, max_tokens=40, messages=user("What is the capital of France?"), extra_body={"temperature": 0})
    equal(answer.content[0].text, chat("What is the capital of France?", max_tokens=40).choices[0].message.content)
