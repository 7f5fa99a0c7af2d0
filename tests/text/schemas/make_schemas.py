"""Writes schemas.json: 200 JSON Schemas of every kind that people ask for, each with a name and a task for a model.

    python3 make_schemas.py > schemas.json
"""
import itertools
import json

OUT = []


def add(name, task, schema):
    OUT.append({"name": name, "task": task, "schema": schema})


def obj(properties, required=None, **more):
    return {"type": "object", "properties": properties, "required": list(properties) if required is None else required, **more}


STR, INT, NUM, BOOL, NULL = ({"type": t} for t in ("string", "integer", "number", "boolean", "null"))


def arr(items, **more):
    return {"type": "array", "items": items, **more}


# Plain objects, as assistants are asked for.
PEOPLE = {
    "person": ("Describe a person.", {"name": STR, "age": INT, "email": STR}),
    "product": ("Describe a product in a shop.", {"title": STR, "price": NUM, "in_stock": BOOL}),
    "book": ("Name a famous book.", {"title": STR, "author": STR, "year": INT, "genres": arr(STR)}),
    "city": ("Give facts about Oslo.", {"name": STR, "country": STR, "population": INT, "capital": BOOL}),
    "weather": ("What is the weather in Paris?", {"temperature": NUM, "unit": {"enum": ["c", "f"]}, "summary": STR}),
    "recipe": ("Give a recipe for pancakes.", {"name": STR, "ingredients": arr(STR), "minutes": INT}),
    "movie": ("Name a film.", {"title": STR, "director": STR, "year": INT, "rating": NUM}),
    "flight": ("Book a flight.", {"from": STR, "to": STR, "passengers": INT, "direct": BOOL}),
    "ticket": ("Summarise: the printer on floor 3 is broken.", {"summary": STR, "priority": {"enum": ["low", "medium", "high"]}, "open": BOOL}),
    "planet": ("Describe the planet Mars.", {"name": STR, "moons": INT, "has_rings": BOOL, "radius_km": NUM}),
}
for i, (key, (task, properties)) in enumerate(PEOPLE.items()):
    add(f"object_{key}", task, obj(properties))
    add(f"list_{key}", task + " Give a list.", arr(obj(properties), minItems=1, maxItems=3))
    if i % 2:
        add(f"closed_{key}", task, obj(properties, additionalProperties=False))
    else:
        add(f"optional_{key}", task, obj(properties, required=list(properties)[:1]))
        add(f"nullable_{key}", task, obj({k: {"anyOf": [v, NULL]} for k, v in properties.items()}))
add("nothing_required", "Describe a cat.", obj({"name": STR, "age": INT, "color": STR, "indoor": BOOL}, required=[]))
add("empty_object", "Answer with an empty object.", {"type": "object", "properties": {}, "additionalProperties": False})
add("free_object", "Describe yourself.", {"type": "object"})
add("last_required", "Describe a dog.", obj({"a": STR, "b": INT, "c": BOOL, "d": STR}, required=["d"]))
add("odd_names", "Fill in the form.", obj({"first name": STR, "e-mail": STR, "größe": INT, "\"quoted\"": BOOL, "a\\b": NULL}))

# Enums, constants, single values.
add("enum_strings", "Is this good? I love it!", {"enum": ["positive", "neutral", "negative"]})
add("enum_mixed", "Pick one.", {"enum": [1, "one", None, True, 1.5]})
add("enum_objects", "Pick one.", {"enum": [{"a": 1}, {"b": [1, 2]}, []]})
add("enum_typed", "Pick a number.", {"type": "integer", "enum": [1, 2, "3", 4.5, 8]})
add("const_string", "Say yes.", {"const": "yes"})
add("const_object", "Repeat.", {"const": {"version": 1, "tags": ["a", "b"]}})
add("const_member", "Make an event.", obj({"type": {"const": "event"}, "name": STR}))
for name, schema, task in (("string", STR, "Say hello."), ("integer", INT, "How many days has a week?"), ("number", NUM, "What is pi?"),
                           ("boolean", BOOL, "Is water wet?"), ("null", NULL, "Say nothing.")):
    add(f"bare_{name}", task, schema)
add("types_list", "How old are you?", {"type": ["integer", "string", "null"]})
add("types_member", "Fill in.", obj({"value": {"type": ["number", "boolean"]}, "note": {"type": ["string", "null"]}}))
add("enum_in_array", "Which colours has a flag?", arr({"enum": ["red", "green", "blue", "white"]}, minItems=1, maxItems=4))
add("enum_long", "Pick a country.", obj({"country": {"enum": [f"country_{i}" for i in range(200)]}}))
add("enum_unicode", "Wähle.", obj({"wahl": {"enum": ["ja", "nein", "vielleicht…", "日本", "naïve \"quoted\""]}}))

# Arrays.
for low, high in ((0, 3), (1, 1), (2, 2), (3, 5), (0, 10), (5, 8)):
    add(f"array_{low}_{high}", "List numbers.", arr(INT, minItems=low, maxItems=high))
    add(f"array_strings_{low}_{high}", "List animals.", obj({"animals": arr({"type": "string", "maxLength": 20}, minItems=low, maxItems=high)}))
add("array_of_arrays", "Give a 3x3 matrix.", arr(arr(INT, minItems=3, maxItems=3), minItems=3, maxItems=3))
add("array_free", "Give a list.", {"type": "array", "maxItems": 4})
add("tuple", "Give a point with a name.", {"type": "array", "prefixItems": [STR, NUM, NUM], "items": False, "minItems": 3})
add("tuple_old", "Give a pair.", {"type": "array", "items": [STR, INT], "additionalItems": False, "minItems": 2})
add("tuple_rest", "Give a name and numbers.", {"type": "array", "prefixItems": [STR], "items": INT, "minItems": 2, "maxItems": 5})
add("tuple_optional", "Give up to three.", {"type": "array", "prefixItems": [INT, STR, BOOL], "items": False})
add("unique_enum", "Which days do you work?", arr({"enum": ["mon", "tue", "wed", "thu", "fri"]}, uniqueItems=True, minItems=2, maxItems=4))
add("unique_small", "Pick lottery numbers.", arr({"type": "integer", "minimum": 1, "maximum": 9}, uniqueItems=True, minItems=3, maxItems=5))
add("unique_strings", "Give tags.", obj({"tags": arr({"type": "string", "maxLength": 30}, uniqueItems=True, minItems=2, maxItems=5)}))
add("contains", "Numbers, one above 100.", arr(INT, contains={"type": "integer", "minimum": 100}, maxItems=4))

# Numbers.
BOUNDS = [(0, 10), (1, 100), (-5, 5), (18, 120), (1900, 2030), (-100, -10), (0, 1), (1000, 1000000), (7, 7), (-1, 0)]
for low, high in BOUNDS:
    add(f"integer_{low}_{high}", "Pick a number.", {"type": "integer", "minimum": low, "maximum": high})
for low, high in ((0, 1), (-1.5, 2.25), (0.1, 0.9), (10, 99.5), (-0.5, -0.25), (100, 1000), (3.14, 3.15)):
    add(f"number_{low}_{high}", "Pick a number.", obj({"score": {"type": "number", "minimum": low, "maximum": high}}))
add("number_exclusive", "Pick a probability.", {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1})
add("integer_exclusive", "Pick.", {"type": "integer", "exclusiveMinimum": 0, "exclusiveMaximum": 10})
add("number_exclusive_old", "Pick.", {"type": "number", "minimum": 0, "exclusiveMinimum": True, "maximum": 5})
add("number_minimum", "How much?", obj({"price": {"type": "number", "minimum": 0}}))
add("integer_minimum", "How many?", obj({"count": {"type": "integer", "minimum": 1}}))
add("integer_maximum", "How cold?", obj({"degrees": {"type": "integer", "maximum": 0}}))
add("number_maximum", "How cold?", obj({"degrees": {"type": "number", "maximum": -2.5}}))
add("multiple_5", "Pick.", {"type": "integer", "multipleOf": 5, "minimum": 0, "maximum": 100})
add("multiple_3", "Pick.", {"type": "integer", "multipleOf": 3})
add("multiple_half", "Rate the film.", {"type": "number", "multipleOf": 0.5, "minimum": 0, "maximum": 5})
add("multiple_cent", "Give a price.", obj({"price": {"type": "number", "multipleOf": 0.01, "minimum": 0, "maximum": 20}}))

# Strings.
PATTERNS = {
    "zip": "^[0-9]{5}$", "phone": r"^\+[1-9][0-9]{6,14}$", "plate": "^[A-Z]{2}-[0-9]{3,4}$", "slug": "^[a-z0-9]+(-[a-z0-9]+)*$", "hex": "^#[0-9a-fA-F]{6}$",
    "version": r"^\d+\.\d+\.\d+$", "either": "^(cat|dog|bird)s?$", "quotes": r'^"[a-z]{1,5}"$', "backslash": r"^[A-Z]:\\[a-z]{1,8}$", "unanchored": "[0-9]",
    "prefix": "^ID", "suffix": "end$", "not_class": "^[^0-9]{3,10}$", "any": "^.{4,12}$", "unicode": r"^[\u00e0-\u00ff]{2,4}$", "letters": r"^[A-Z][a-z]{2,9}( [A-Z][a-z]{2,9})?$", "lazy": "^a+?b*?$",
    "nested": "^((ab){1,2}c){2,3}$", "alternatives": "^a$|^b$|cc", "word": r"^\w+\s\w+$",
}
for key, pattern in PATTERNS.items():
    add(f"pattern_{key}", "Fill in the code.", obj({"code": {"type": "string", "pattern": pattern}}))
add("pattern_length", "Fill in.", obj({"user": {"type": "string", "pattern": "^[a-z_]+$", "minLength": 3, "maxLength": 12}}))
add("pattern_length_groups", "Fill in.", obj({"slug": {"type": "string", "pattern": "^[a-z]+(-[a-z]+)*$", "minLength": 6, "maxLength": 20}}))
for low, high in ((0, 5), (1, 1), (3, 8), (10, 40), (0, 100), (20, 20)):
    add(f"length_{low}_{high}", "Write a text.", obj({"text": {"type": "string", "minLength": low, "maxLength": high}}))
add("length_min", "Write a name.", obj({"name": {"type": "string", "minLength": 1}}))
FORMATS = ["date", "time", "date-time", "email", "uuid", "ipv4", "ipv6", "hostname", "uri", "duration", "json-pointer"]
for key in FORMATS:
    add(f"format_{key}", f"Give a {key}.", obj({"value": {"type": "string", "format": key}}))
add("format_unknown", "Give a colour.", obj({"color": {"type": "string", "format": "color-name"}}))
add("formats_together", "Log a visit.", obj({"id": {"type": "string", "format": "uuid"}, "at": {"type": "string", "format": "date-time"}, "from": {"type": "string", "format": "ipv4"}}))

# References and recursion.
add("ref", "Order for Ada.", {**obj({"billing": {"$ref": "#/$defs/address"}, "shipping": {"$ref": "#/$defs/address"}}), "$defs": {"address": obj({"street": STR, "city": STR})}})
add("ref_definitions", "Who?", {**obj({"who": {"$ref": "#/definitions/who"}}), "definitions": {"who": obj({"name": STR})}})
add("ref_chain", "Count.", {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/c"}, "c": INT}})
add("ref_anchor", "Count.", {**obj({"n": {"$ref": "#count"}}), "$defs": {"x": {"$anchor": "count", "type": "integer", "minimum": 0}}})
add("ref_sibling", "Name it.", {**obj({"name": {"$ref": "#/$defs/text", "maxLength": 10}}), "$defs": {"text": {"type": "string", "minLength": 2}}})
add("tree", "A family tree.", {"$ref": "#/$defs/node", "$defs": {"node": obj({"name": STR, "children": arr({"$ref": "#/$defs/node"}, maxItems=3)})}})
add("linked_list", "A list of names.", {"$ref": "#/$defs/node", "$defs": {"node": obj({"value": STR, "next": {"anyOf": [{"$ref": "#/$defs/node"}, NULL]}})}})
add("expression", "Write 1 + 2 * 3.", {"$ref": "#/$defs/e", "$defs": {"e": {"anyOf": [INT, obj({"op": {"enum": ["+", "*"]}, "left": {"$ref": "#/$defs/e"}, "right": {"$ref": "#/$defs/e"}})]}}})
add("root_recursion", "A folder.", {"type": "object", "properties": {"name": STR, "folders": arr({"$ref": "#"}, maxItems=2)}, "required": ["name"]})
add("mutual", "A company.", {"$ref": "#/$defs/team", "$defs": {"team": obj({"lead": {"$ref": "#/$defs/person"}}), "person": obj({"name": STR, "teams": arr({"$ref": "#/$defs/team"}, maxItems=2)}, required=["name"])}})

# Combinations.
CAT, DOG = obj({"kind": {"const": "cat"}, "lives": INT}), obj({"kind": {"const": "dog"}, "tricks": arr(STR, maxItems=3)})
for key in ("anyOf", "oneOf"):
    add(f"{key}_pets", "Describe a pet.", {key: [CAT, DOG]})
    add(f"{key}_types", "Answer.", {key: [STR, INT, NULL]})
    add(f"{key}_member", "Answer.", obj({"result": {key: [obj({"ok": {"const": True}, "value": NUM}), obj({"error": STR})]}}))
    add(f"{key}_required", "Contact.", {**obj({"name": STR, "mail": STR, "phone": STR}, required=["name"]), key: [{"required": ["mail"]}, {"required": ["phone"]}]})
add("oneOf_numbers", "Pick.", {"oneOf": [{"type": "integer", "maximum": 10}, {"type": "integer", "minimum": 100}]})
add("oneOf_overlap", "Pick.", {"oneOf": [{"enum": ["a", "b", "c"]}, {"enum": ["c", "d"]}]})
add("oneOf_text_or_word", "Pick.", {"oneOf": [{"const": "auto"}, STR]})
add("oneOf_lengths", "Pick.", {"oneOf": [{"type": "string", "maxLength": 3}, {"type": "string", "minLength": 5, "maxLength": 12}]})
add("allOf", "Describe an employee.", {"allOf": [obj({"name": STR}), obj({"salary": {"type": "number", "minimum": 0}})]})
add("allOf_ref", "Describe a manager.", {"allOf": [{"$ref": "#/$defs/p"}, obj({"reports": {"type": "integer", "minimum": 1, "maximum": 50}})], "$defs": {"p": obj({"name": STR})}})
add("allOf_bounds", "Pick.", {"type": "integer", "allOf": [{"minimum": 3}, {"maximum": 9}, {"multipleOf": 2}]})
add("allOf_anyOf", "Pick.", {"allOf": [{"anyOf": [STR, INT]}, {"anyOf": [INT, BOOL]}]})
add("not_enum", "Any word but no.", obj({"word": {"type": "string", "not": {"enum": ["no", "none"]}}}))
add("not_type", "Not a string.", {"not": {"type": ["string", "object", "array"]}})
add("not_const", "Not zero.", {"type": "integer", "minimum": -3, "maximum": 3, "not": {"const": 0}})
add("not_required", "Without b.", {**obj({"a": INT, "b": INT}, required=["a"]), "not": {"required": ["b"]}})
add("if_then_else", "An address.", {**obj({"country": {"enum": ["US", "CA"]}, "code": STR}), "if": {"properties": {"country": {"const": "US"}}}, "then": {"properties": {"code": {"pattern": "^[0-9]{5}$"}}},
                                    "else": {"properties": {"code": {"pattern": "^[A-Z][0-9][A-Z]$"}}}})
add("dependent_required", "Pay.", {**obj({"name": STR, "card": STR, "address": STR}, required=["name"]), "dependentRequired": {"card": ["address"]}})
add("dependent_schemas", "Pay.", {**obj({"name": STR, "card": STR, "cvc": INT}, required=["name"]), "dependentSchemas": {"card": {"required": ["cvc"]}}})
add("nullable_openapi", "Maybe.", obj({"name": {"anyOf": [STR, NULL]}, "n": {"type": ["integer", "null"]}}))
add("untyped", "Describe.", {"properties": {"a": {"minimum": 3}, "b": {"minLength": 2}, "c": {"items": INT}}, "required": ["a", "b", "c"]})

# Open objects.
add("map", "Ages of three people.", {"type": "object", "additionalProperties": INT})
add("map_bounds", "Ages.", {"type": "object", "additionalProperties": {"type": "integer", "minimum": 0}, "maxProperties": 3})
add("map_names", "Translations.", {"type": "object", "propertyNames": {"pattern": "^[a-z]{2}$"}, "additionalProperties": STR, "maxProperties": 4})
add("map_enum_names", "Scores.", {"type": "object", "propertyNames": {"enum": ["math", "art"]}, "additionalProperties": INT})
add("map_and_members", "A config.", obj({"name": STR}, additionalProperties={"type": "boolean"}))
add("pattern_properties", "Settings.", {"type": "object", "patternProperties": {"^x-[a-z]+$": INT}, "additionalProperties": False})
add("min_properties", "At least two.", obj({"a": INT, "b": INT, "c": INT}, required=[], minProperties=2))
add("max_properties", "At most one.", obj({"a": INT, "b": INT, "c": INT}, required=[], maxProperties=1))
add("open_true", "Describe.", obj({"name": STR}, additionalProperties=True))

# Larger ones.
add("nested_6", "Nest.", (lambda f: f(f, 6))(lambda f, n: obj({"v": INT, "in": f(f, n - 1)}) if n else INT))
add("wide_30", "Fill in the form.", obj({f"field_{i}": [STR, INT, BOOL, NUM][i % 4] | ({"maxLength": 8} if i % 4 == 0 else {}) for i in range(30)}))
add("invoice", "Write an invoice.", {
    **obj({"number": {"type": "string", "pattern": "^INV-[0-9]{4}$"}, "date": {"type": "string", "format": "date"}, "customer": {"$ref": "#/$defs/customer"},
           "lines": arr({"$ref": "#/$defs/line"}, minItems=1, maxItems=3), "paid": BOOL}),
    "$defs": {"customer": obj({"name": {"type": "string", "minLength": 1, "maxLength": 40}, "vat": {"anyOf": [{"type": "string", "pattern": "^[A-Z]{2}[0-9]{8}$"}, NULL]}}),
              "line": obj({"text": {"type": "string", "maxLength": 40}, "quantity": {"type": "integer", "minimum": 1, "maximum": 99}, "price": {"type": "number", "minimum": 0, "maximum": 9999.99}})}})
add("openapi_event", "Plan a meeting.", obj({"title": {"type": "string", "minLength": 3, "maxLength": 60}, "start": {"type": "string", "format": "date-time"}, "minutes": {"type": "integer", "enum": [15, 30, 45, 60]},
                                             "people": arr(obj({"name": {"type": "string", "maxLength": 30}, "email": {"type": "string", "format": "email"}}), minItems=1, maxItems=3), "online": BOOL}))
add("quiz", "Write a quiz question.", obj({"question": {"type": "string", "maxLength": 120}, "options": arr({"type": "string", "maxLength": 40}, minItems=4, maxItems=4), "answer": {"type": "integer", "minimum": 0, "maximum": 3}}))
add("sentiment", "I love this phone but the battery is weak.", obj({"sentiment": {"enum": ["positive", "negative", "mixed"]}, "confidence": {"type": "number", "minimum": 0, "maximum": 1}, "reasons": arr({"type": "string", "maxLength": 60}, maxItems=3)}))
add("extraction", "Ada Lovelace was born in London in 1815.", obj({"people": arr(obj({"name": {"type": "string", "maxLength": 40}, "born": {"type": ["integer", "null"]}, "place": {"type": ["string", "null"], "maxLength": 40}}), maxItems=3)}))

assert len(OUT) == 200, len(OUT)
assert len({o["name"] for o in OUT}) == len(OUT), [n for n, g in itertools.groupby(sorted(o["name"] for o in OUT)) if len(list(g)) > 1]
print("[\n" + ",\n".join(json.dumps(o, ensure_ascii=False) for o in OUT) + "\n]")
