"""The Lua scripts. Each does its reading, checking and writing as one step of the server; all keys come through KEYS.

They run on Redis 6.2 and newer, Valkey, and in a Cluster. Numbers travel as decimal text: epochs and versions stay
below 2^53, and larger ones (nobody sane wrote them) count as 0.
"""

import hashlib
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Script:
    """A script, its short name for messages and its hash for EVALSHA."""

    name: str
    source: str
    sha: str = field(init=False)

    def __post_init__(self) -> None:
        digest = hashlib.sha1(self.source.encode(), usedforsecurity=False).hexdigest()
        object.__setattr__(self, "sha", digest)


_NUMBER = """
local function number(text)
  local value = tonumber(text or '') or 0
  if value < 0 or value > 9007199254740991 then return 0 end
  return value
end
"""

# KEYS[1] is the leader key, ARGV[1] and ARGV[2] the token and epoch of the lease the caller believes it holds.
_LEADS = """
local lead = redis.call('HMGET', KEYS[1], 'token', 'epoch', 'holder')
if lead[1] ~= ARGV[1] or lead[2] ~= ARGV[2] then
  return {'not_leader', lead[2] or '', lead[3] or ''}
end
"""

ACQUIRE = Script(
    "acquire",
    _NUMBER
    + """
-- KEYS: leader, memory, overlay... ; ARGV: token, holder, lease in ms, epoch floor, since
local held = redis.call('HMGET', KEYS[1], 'token', 'epoch', 'holder')
if (held[1] or held[2]) and held[1] ~= ARGV[1] then
  return {'held', held[2] or '0', held[3] or '', redis.call('PTTL', KEYS[1])}
end
local epoch = math.max(number(ARGV[4]), number(held[2]))
for index = 2, #KEYS do
  epoch = math.max(epoch, number(redis.call('HGET', KEYS[index], 'epoch')))
end
local text = string.format('%.0f', epoch + 1)
redis.call('HSET', KEYS[1], 'holder', ARGV[2], 'token', ARGV[1], 'epoch', text, 'since', ARGV[5])
redis.call('PEXPIRE', KEYS[1], ARGV[3])
redis.call('HSET', KEYS[2], 'epoch', text)
return {'acquired', text, ARGV[2], ARGV[3]}
""",
)

RENEW = Script(
    "renew",
    _LEADS
    + """
redis.call('PEXPIRE', KEYS[1], ARGV[3])
return {'renewed', ARGV[2], lead[3]}
""",
)

RELEASE = Script(
    "release",
    _LEADS
    + """
redis.call('DEL', KEYS[1])
return {'released', ARGV[2], lead[3]}
""",
)

CHECK = Script(
    "check",
    _LEADS
    + """
-- KEYS: leader, overlay...
local found = {'ok'}
for index = 2, #KEYS do
  local stored = redis.call('HMGET', KEYS[index], 'epoch', 'version', 'revision')
  if not stored[1] or redis.call('HEXISTS', KEYS[index], 'document') == 0 then stored = {'', '', ''} end
  found[index] = {stored[1] or '', stored[2] or '', stored[3] or ''}
end
return found
""",
)

# The order of the writes makes it all or nothing. Types are looked at before anything is written. XADD comes first
# because a server short of memory refuses the first write of a script, and only that. PUBLISH can be refused by the
# ACL: then the entry is taken back. HSET on a key known to be a hash comes last.
PUBLISH = Script(
    "publish",
    _NUMBER
    + _LEADS
    + """
-- KEYS: leader, overlay, history
-- ARGV: token, epoch, seen epoch, seen version, force, version, revision, document, published_at, reason,
--       history length, publish command, channel, announcement
local stored = redis.call('HMGET', KEYS[2], 'epoch', 'version', 'revision')
if not stored[1] or redis.call('HEXISTS', KEYS[2], 'document') == 0 then stored = {false, false, false} end
redis.call('XLEN', KEYS[3])
local epoch, version, revision = stored[1] or '', stored[2] or '', stored[3] or ''
if number(epoch) > number(ARGV[2]) then return {'newer_epoch', epoch, version, revision} end
if revision == ARGV[7] and ARGV[5] ~= '1' then return {'unchanged', epoch, version, revision} end
if epoch ~= ARGV[3] or version ~= ARGV[4] then return {'changed_meanwhile', epoch, version, revision} end
if number(epoch) == number(ARGV[2]) and number(version) >= number(ARGV[6]) then
  return {'changed_meanwhile', epoch, version, revision}
end
local id = redis.call('XADD', KEYS[3], 'MAXLEN', '~', ARGV[11], '*', 'epoch', ARGV[2], 'version', ARGV[6],
  'revision', ARGV[7], 'document', ARGV[8], 'published_at', ARGV[9], 'reason', ARGV[10])
local sent = redis.pcall(ARGV[12], ARGV[13], ARGV[14])
if type(sent) == 'table' and sent.err then
  redis.call('XDEL', KEYS[3], id)
  return sent
end
redis.call('HSET', KEYS[2], 'epoch', ARGV[2], 'version', ARGV[6], 'revision', ARGV[7], 'document', ARGV[8],
  'published_at', ARGV[9])
return {'published', ARGV[2], ARGV[6], ARGV[7]}
""",
)

FRAME = Script(
    "frame",
    _LEADS
    + """
-- KEYS: leader, signal ; ARGV: token, epoch, frame, expiry in ms, publish command, channel
redis.call('SET', KEYS[2], ARGV[3], 'PX', ARGV[4])
redis.call(ARGV[5], ARGV[6], ARGV[3])
return {'sent', ARGV[2], lead[3]}
""",
)

REMEMBER = Script(
    "remember",
    _LEADS
    + """
-- KEYS: leader, memory ; ARGV: token, epoch, policy
redis.call('HSET', KEYS[2], 'policy', ARGV[3], 'saved_at', redis.call('TIME')[1], 'epoch', ARGV[2])
return {'saved', ARGV[2], lead[3]}
""",
)

REPORT = Script(
    "report",
    """
-- KEYS: report, index ; ARGV: member, expiry in ms, s a silent member stays in the index, then field, value...
local now = tonumber(redis.call('TIME')[1])
redis.call('DEL', KEYS[1])
redis.call('HSET', KEYS[1], unpack(ARGV, 4))
redis.call('PEXPIRE', KEYS[1], ARGV[2])
redis.call('ZADD', KEYS[2], now, ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', now - tonumber(ARGV[3]))
return 'OK'
""",
)

REPAIR = Script(
    "repair",
    """
-- KEYS: any ; ARGV: the type that each must have
local removed = {}
for index = 1, #KEYS do
  local kind = redis.call('TYPE', KEYS[index]).ok
  if kind ~= 'none' and kind ~= ARGV[index] then
    redis.call('DEL', KEYS[index])
    table.insert(removed, KEYS[index])
    table.insert(removed, kind)
  end
end
return removed
""",
)
