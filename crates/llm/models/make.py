"""Writes the table of models, `models.toml`, from two public lists.

litellm is the source; genai-prices is the second opinion: a price on which they disagree is left out, with a comment.
Run it by hand, in an environment with genai-prices, and check the difference before a commit:

    pip download --no-deps litellm==1.110.2
    pip install genai-prices==0.2.3
    python make.py litellm-1.110.2-*.whl 2026-11-28 > models.toml
"""

import json
import re
import sys
import zipfile
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from importlib.metadata import version
from pathlib import Path

from genai_prices.data_snapshot import get_snapshot
from genai_prices.types import TieredPrices

FILE = "litellm/model_prices_and_context_window_backup.json"

# By the provider's name in litellm: the prefix of its ids there, its name in genai-prices, and its own protocol.
PROVIDERS = {
    "anthropic": ("", "anthropic", "anthropic"),
    "openai": ("", "openai", "responses"),
    "gemini": ("gemini/", "google", "gemini"),
    "mistral": ("mistral/", "mistral", "chat"),
    "deepseek": ("deepseek/", "deepseek", "chat"),
    "dashscope": ("dashscope/", None, "chat"),
    "xai": ("xai/", "x-ai", "chat"),
    "cohere_chat": ("", "cohere", "cohere"),
    "moonshot": ("moonshot/", "moonshotai", "chat"),
    "zai": ("zai/", "zai", "chat"),
    "minimax": ("minimax/", "minimax", "chat"),
    "meta": ("meta/", "meta", "chat"),
    "groq": ("groq/", "groq", "chat"),
    "cerebras": ("cerebras/", "cerebras", "chat"),
    "meta_llama": ("meta_llama/", None, "chat"),
}

# Anyone may serve open weights under these names, so their prices say nothing.
OPEN = {"groq", "cerebras", "meta_llama"}

# Models for something else than conversations, and experiments.
OTHER = re.compile(
    r"^ft:|audio|search|research|computer-use|container|robotics|lyria|omni-|tts|exp-|gemma-[23]|learnlm|guard|rosalind|chat-latest"
    r"|daybreak|cyber|experimental|-beta|-gv2|astra-law|vibe|leanstral|fim|contributor|sam-|aya|mamba|vision-preview|voxtral"
    r"|customtools|multi-agent|grok-code|mistral/.*(glm|deepseek|tiny|nemo|pixtral|ministral-3-)|mistral-(medium|small)$"
    r"|dashscope/(glm|kimi|deepseek|qwen-(turbo|coder|.*20\d\d)|qwen3-(30b|next|vl|coder.*20)|qwq)|glm-4(-|\.5)|deepseek/deepseek-(coder|r1|v3)"
)

# A version, which is an alias of the plain name if its facts are the same.
VERSION = re.compile(r"-(20\d{2}-\d{2}-\d{2}|20\d{6}|\d{4}|latest)$")

# Claude models whose thinking is bound to everything before it, by Anthropic's page "Preserved thinking".
BOUND = re.compile(r"^claude-(fable-5-1|mythos-5-1|(opus|sonnet|haiku)-5-5)")

PRICES = {
    "input": ("input_cost_per_token", "input_mtok"),
    "cached": ("cache_read_input_token_cost", "cache_read_mtok"),
    "cache_write": ("cache_creation_input_token_cost", "cache_write_mtok"),
    "cache_write_1h": ("cache_creation_input_token_cost_above_1hr", "cache_write_1h_mtok"),
    "output": ("output_cost_per_token", "output_mtok"),
    "reasoning": ("output_cost_per_reasoning_token", None),
}

CAN = {
    "tools": "supports_function_calling",
    "images": "supports_vision",
    "audio": "supports_audio_input",
    "pdf": "supports_pdf_input",
    "schema": "supports_response_schema",
    "reasoning": "supports_reasoning",
    "adaptive": "supports_adaptive_thinking",
    "mid_system": "supports_mid_conversation_system",
}

CANNOT = {
    "sampling": ("supports_sampling_params", False),
    "force_tool": ("supports_forced_tool_use", False),
    "no_thinking": ("thinking_always_on", True),
    "prefill": ("supports_assistant_prefill", False),
}


def decimal(amount):
    """Returns an amount per million without trailing zeros."""
    return format(Decimal(amount).normalize(), "f")


def per_million(entry, key):
    """Returns a price of litellm; none if it is missing, or zero although the model is not free."""
    amount = Decimal(entry.get(key) or 0) * 1_000_000
    return decimal(amount) if amount else None


def price_of(entry):
    """Returns the prices per million, those of long inputs under `above`."""
    tiers = {}
    for key in entry:
        if tier := re.fullmatch(r"input_cost_per_token_above_(\d+)k_tokens", key):
            names = {key: f"{key}_above_{tier[1]}k_tokens" for key, _ in PRICES.values()}
            tiers[int(tier[1]) * 1000] = {key: entry.get(name) for key, name in names.items()}
    for tier in entry.get("tiered_pricing") or []:
        tiers[int(tier["range"][0])] = tier
    base = tiers.pop(0, entry)
    if not per_million(base, "input_cost_per_token") or not per_million(base, "output_cost_per_token"):
        return None
    above = [{"tokens": tokens} | amounts(tiers[tokens]) for tokens in sorted(tiers)]
    return amounts(base) | ({"above": above} if above else {})


def amounts(entry):
    """Returns the prices per million of one tier."""
    found = {name: per_million(entry, key) for name, (key, _) in PRICES.items()}
    if found["reasoning"] == found["output"]:
        found["reasoning"] = None
    return {name: amount for name, amount in found.items() if amount}


def second_opinion(name, provider, day):
    """Returns the prices of genai-prices in the same form; none for a model or provider that it does not have."""
    try:
        model = get_snapshot().find_provider_model(name, None, provider, None)[1]
    except LookupError:
        return None
    found = model.get_prices(day)
    price, above = {}, {}
    for name, (_, key) in PRICES.items():
        amount = getattr(found, key, None) if key else None
        if isinstance(amount, TieredPrices):
            for tier in amount.tiers:
                # A tier begins behind a thousand, or with the last token of it.
                above.setdefault(round(tier.start, -3), {})[name] = decimal(tier.price)
            amount = amount.base
        if amount:
            price[name] = decimal(amount)
    return price | ({"above": [{"tokens": start} | above[start] for start in sorted(above)]} if above else {})


def differences(one, other, window):
    """Returns the prices up to this window on which both lists have an opinion, and not the same."""
    found = [
        f"{name} {one[name]} or {other[name]}"
        for name in PRICES
        if name in one and name in other and one[name] != other[name]
    ]
    tiers = [{tier["tokens"]: tier for tier in price.get("above", [])} for price in (one, other)]
    for tokens in sorted(set(tiers[0]) | set(tiers[1])):
        if tokens >= window:
            continue
        if not (tiers[0].get(tokens) and tiers[1].get(tokens)):
            found.append(f"above {tokens} in one list only")
        else:
            found += [f"above {tokens} {wrong}" for wrong in differences(tiers[0][tokens], tiers[1][tokens], window)]
    return found


def is_current(key, entry, day):
    end = entry.get("deprecation_date")
    is_over = bool(end) and end <= day.date().isoformat()
    return entry.get("mode") in ("chat", "responses") and not is_over and not OTHER.search(key)


def facts(key, entry, day):
    """Returns the fields of a model, without its id."""
    prefix, second, wire = PROVIDERS[entry["litellm_provider"]]
    name = key.removeprefix(prefix)
    endpoints = entry.get("supported_endpoints") or []
    if wire == "responses" and endpoints and "/v1/responses" not in endpoints:
        wire = "chat"
    limits = {"window": "max_input_tokens", "max_output": "max_output_tokens", "cache_min": "prompt_cache_min_tokens"}
    limits = {field: int(entry.get(key) or 0) for field, key in limits.items()}
    cache_min = limits.pop("cache_min")
    found = {"wire": wire} | limits
    price = None if entry["litellm_provider"] in OPEN else price_of(entry)
    if price:
        opinion = second_opinion(name, second, day) if second else None
        wrong = differences(price, opinion, found["window"]) if opinion else []
        found["comment" if wrong else "price"] = "no price, since the lists differ: " + "; ".join(wrong) if wrong else price
    can = [name for name, field in CAN.items() if entry.get(field)]
    found["can"] = can + (["bound"] if BOUND.match(name) else [])
    found["cannot"] = [name for name, (field, value) in CANNOT.items() if entry.get(field) is value]
    found["cache_min"] = cache_min
    return {field: value for field, value in found.items() if value}


def toml(value):
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{name} = {toml(inner)}" for name, inner in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    return f"{value:_}" if isinstance(value, int) else json.dumps(value)


def main(wheel, today):
    # Prices that depend on the hour are those of a working day's morning, which are the highest.
    day = datetime.fromisoformat(today).replace(tzinfo=timezone.utc, hour=8)
    day -= timedelta(days=max(0, day.weekday() - 4))
    with zipfile.ZipFile(wheel) as files:
        entries = json.loads(files.read(FILE), parse_float=Decimal)
    models = {}
    for key, entry in entries.items():
        provider = PROVIDERS.get(entry.get("litellm_provider"))
        if provider and is_current(key, entry, day):
            models.setdefault(key.removeprefix(provider[0]), facts(key, entry, day))
    source = f"litellm {Path(wheel).name.split('-')[1]}"
    print(f"# Made by make.py from {source}, Copyright (c) 2023 Berri AI, under the MIT License, whose text is in LICENSE-MIT;")
    print(f"# cross-checked with genai-prices {version('genai-prices')}.")
    print("# Prices in $ per million tokens. `window` is the maximum input where a provider has one.")
    aliases = {}
    for name, found in models.items():
        plain = VERSION.sub("", name)
        if plain != name and models.get(plain) == found:
            aliases.setdefault(plain, []).append(name)
    dated = {name for names in aliases.values() for name in names}
    for name in sorted(models.keys() - dated):
        found = models[name]
        print("\n[[model]]")
        print(f"id = {toml(name)}")
        if name in aliases:
            print(f"alias = {toml(sorted(aliases[name]))}")
        if found["wire"] in ("anthropic", "responses") and not VERSION.search(name):
            print(f"prefix = {toml(name + '-20')}")
        if "comment" in found:
            print(f"# {found.pop('comment')}")
        for field, value in found.items():
            print(f"{field} = {toml(value)}")
        print(f"source = {toml(source)}\nas_of = {toml(today)}")


if __name__ == "__main__":
    main(*sys.argv[1:])
