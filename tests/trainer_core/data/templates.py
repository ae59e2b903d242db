"""Chat templates in the manner of well-known models, written for these tests, with the special tokens each needs."""

from __future__ import annotations

CHATML = """{%- for message in messages %}
{{- '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"""

# Writes bos itself, trims contents, and its headers are two special tokens around a word.
LLAMA3 = """{{- bos_token }}
{%- for message in messages %}
{{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n' + message['content'] | trim + '<|eot_id|>' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{%- endif %}"""

# Has no generation prompt, a space before each reply, raises unless user and assistant alternate, and shows the tools
# before the last user message, so that earlier prefixes of a conversation read otherwise than the whole.
MISTRAL = """{{- bos_token }}
{%- if messages[0]['role'] == 'system' %}
{%- set system = messages[0]['content'] %}{%- set rest = messages[1:] %}
{%- else %}{%- set rest = messages %}{%- endif %}
{%- set ns = namespace(turn=0, last_user=-1) %}
{%- for message in rest %}
{%- if message['role'] == 'user' or (message['role'] == 'assistant' and not message.tool_calls) %}
{%- if (message['role'] == 'user') != (ns.turn % 2 == 0) %}
{{- raise_exception('roles must alternate user/assistant/user/assistant/...') }}
{%- endif %}{%- set ns.turn = ns.turn + 1 %}{%- endif %}
{%- if message['role'] == 'user' %}{%- set ns.last_user = loop.index0 %}{%- endif %}
{%- endfor %}
{%- for message in rest %}
{%- if message['role'] == 'user' %}
{%- if tools and loop.index0 == ns.last_user %}
{{- '[AVAILABLE_TOOLS]' + (tools | tojson) + '[/AVAILABLE_TOOLS]' }}
{%- endif %}
{{- '[INST]' }}{%- if loop.first and system is defined %}{{- system + '\\n\\n' }}{%- endif %}
{{- message['content'] + '[/INST]' }}
{%- elif message.tool_calls %}
{{- '[TOOL_CALLS][' }}
{%- for call in message.tool_calls %}
{{- '{"name": "' + call.function.name + '", "arguments": ' + (call.function.arguments | tojson) + '}' }}
{%- endfor %}{{- ']' + eos_token }}
{%- elif message['role'] == 'assistant' %}{{- ' ' + message['content'] + eos_token }}
{%- elif message['role'] == 'tool' %}{{- '[TOOL_RESULTS]' + message['content'] + '[/TOOL_RESULTS]' }}
{%- endif %}
{%- endfor %}"""

# Knows no system role and calls the assistant "model".
GEMMA = """{{- bos_token }}
{%- if messages[0]['role'] == 'system' %}{{- raise_exception('System role not supported') }}{%- endif %}
{%- for message in messages %}
{%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}
{{- raise_exception('roles must alternate') }}
{%- endif %}
{%- set role = 'model' if message['role'] == 'assistant' else message['role'] %}
{{- '<start_of_turn>' + role + '\\n' + message['content'] | trim + '<end_of_turn>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<start_of_turn>model\\n' }}{%- endif %}"""

# Drops the reasoning of replies before the last question, and writes an empty one into the last reply.
QWEN3 = """{%- set ns = namespace(last_user=0) %}
{%- for message in messages %}
{%- if message.role == 'user' %}{%- set ns.last_user = loop.index0 %}{%- endif %}
{%- endfor %}
{%- for message in messages %}
{%- if message.role == 'assistant' %}
{%- set content = message.content %}{%- set reasoning = '' %}
{%- if message.reasoning_content is string %}{%- set reasoning = message.reasoning_content %}
{%- elif '</think>' in content %}
{%- set reasoning = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}
{%- set content = content.split('</think>')[-1].lstrip('\\n') %}
{%- endif %}
{{- '<|im_start|>assistant\\n' }}
{%- if loop.index0 > ns.last_user and (loop.last or reasoning) %}
{{- '<think>\\n' + reasoning.strip('\\n') + '\\n</think>\\n\\n' + content.lstrip('\\n') }}
{%- else %}{{- content }}{%- endif %}
{%- for call in message.tool_calls or [] %}
{{- '\\n<tool_call>\\n{"name": "' + call.function.name + '", "arguments": ' + (call.function.arguments | tojson) }}
{{- '}\\n</tool_call>' }}
{%- endfor %}
{{- '<|im_end|>\\n' }}
{%- elif message.role == 'tool' %}{{- '<|im_start|>user\\n<tool_response>\\n' + message.content }}
{{- '\\n</tool_response><|im_end|>\\n' }}
{%- else %}{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"""

# Starts every reply with a reasoning at generation time only, and drops all reasoning when it renders (DeepSeek R1).
R1 = """{{- bos_token }}
{%- for message in messages %}
{%- if message.role == 'user' %}{{- '<|User|>' + message.content }}
{%- elif message.role == 'system' %}{{- message.content }}
{%- elif message.tool_calls %}{{- '<|Assistant|>' }}
{%- for call in message.tool_calls %}
{{- '<|call|>' + call.function.name + '\\n```json\\n' + call.function.arguments + '\\n```' }}
{%- endfor %}{{- eos_token }}
{%- elif message.role == 'assistant' %}{{- '<|Assistant|>' + message.content.split('</think>')[-1] + eos_token }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|Assistant|><think>\\n' }}{%- endif %}"""

# Has generation marks, which stop before the token that closes the turn.
MARKED = """{%- for message in messages %}
{{- '<|im_start|>' + message['role'] + '\\n' }}
{%- if message['role'] == 'assistant' %}
{%- generation %}{{- message['content'] }}{%- endgeneration %}{{- '<|im_end|>\\n' }}
{%- else %}{{- message['content'] + '<|im_end|>\\n' }}{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"""

# Closes nothing and has no special tokens at all (Alpaca).
ALPACA = """{%- for message in messages %}
{{- '### ' + message['role'] + ':\\n' + message['content'] + '\\n\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '### assistant:\\n' }}{%- endif %}"""

# Writes eos at the very end of a conversation besides the token that closes each turn (Phi-3).
PHI3 = """{%- for message in messages %}
{{- '<|' + message['role'] + '|>\\n' + message['content'] + '<|end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|assistant|>\\n' }}{%- else %}{{- eos_token }}{%- endif %}"""

SPECIAL_TOKENS = {
    "chatml": ("<|im_end|>",),
    "llama3": ("<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"),
    "mistral": ("[INST]", "[/INST]", "[TOOL_CALLS]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]"),
    "gemma": ("<start_of_turn>", "<end_of_turn>"),
    "qwen3": ("<|im_end|>",),
    "r1": ("<|User|>", "<|Assistant|>", "<|call|>"),
    "marked": ("<|im_end|>",),
    "alpaca": (),
    "phi3": ("<|user|>", "<|assistant|>", "<|end|>"),
}
TEMPLATES = {
    "chatml": CHATML,
    "llama3": LLAMA3,
    "mistral": MISTRAL,
    "gemma": GEMMA,
    "qwen3": QWEN3,
    "r1": R1,
    "marked": MARKED,
    "alpaca": ALPACA,
    "phi3": PHI3,
}
