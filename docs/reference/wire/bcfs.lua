-- Wireshark dissector for messages of the Breadcrumb Forwarding Service, version 1: see bcfs.md.
--   tshark -X lua_script:docs/reference/wire/bcfs.lua -r capture.pcap
-- Recognised by their first bytes on any UDP port, so nothing needs to be set.

local bcfs = Proto("hwbcfs", "Headwater Breadcrumb Forwarding Service")

local KINDS = { [0] = "Request", [1] = "Null", [2] = "Reply", [3] = "Challenge" }
local FAMILIES = { [4] = "IPv4", [6] = "IPv6" }
local HEADER_BYTES = { [4] = 20, [6] = 32 }

local f = bcfs.fields
f.magic = ProtoField.string("hwbcfs.magic", "Magic")
f.version = ProtoField.uint8("hwbcfs.version", "Version", base.DEC, nil, 0xf0)
f.kind = ProtoField.uint8("hwbcfs.kind", "Kind", base.DEC, KINDS, 0x0f)
f.label = ProtoField.uint32("hwbcfs.label", "Label", base.HEX)
f.level = ProtoField.uint16("hwbcfs.level", "Level")
f.hops = ProtoField.uint8("hwbcfs.hops", "Hops")
f.family = ProtoField.uint8("hwbcfs.family", "Family", base.DEC, FAMILIES)
f.port = ProtoField.uint16("hwbcfs.source.port", "Source port")
f.any = ProtoField.bool("hwbcfs.any", "Any reply would do", 8, nil, 0x01)
f.loss = ProtoField.bool("hwbcfs.loss", "In place of one that was lost", 8, nil, 0x02)
f.renewal = ProtoField.bool("hwbcfs.renewal", "The request was accepted", 8, nil, 0x04)
f.challenge = ProtoField.bytes("hwbcfs.challenge", "Word of the next hop")
f.ipv4 = ProtoField.ipv4("hwbcfs.source.ipv4", "Source address")
f.ipv6 = ProtoField.ipv6("hwbcfs.source.ipv6", "Source address")
f.body = ProtoField.bytes("hwbcfs.body", "Body")
f.word = ProtoField.bytes("hwbcfs.word", "Word of the last packet (CCI)")
f.place = ProtoField.uint32("hwbcfs.place", "Place in a cycle, of 2^32", base.DEC)
f.toi = ProtoField.uint32("hwbcfs.toi", "Transport object identifier asked for", base.DEC)
f.sbn = ProtoField.uint32("hwbcfs.sbn", "Source block number asked for", base.DEC)
f.esi = ProtoField.uint32("hwbcfs.esi", "Encoding symbol ID asked for", base.DEC)

local short = ProtoExpert.new("hwbcfs.short", "Shorter than its header", expert.group.MALFORMED, expert.severity.ERROR)
local strange = ProtoExpert.new("hwbcfs.family.unknown", "Unknown address family", expert.group.MALFORMED, expert.severity.ERROR)
local full = ProtoExpert.new("hwbcfs.null.body", "A null has a body of 0 or 16 bytes", expert.group.MALFORMED, expert.severity.ERROR)
bcfs.experts = { short, strange, full }

local function is_ours(buffer)
    return buffer:len() >= 4 and buffer(0, 3):string() == "HWB"
        and buffer(3, 1):bitfield(0, 4) == 1 and KINDS[buffer(3, 1):bitfield(4, 4)] ~= nil
end

function bcfs.dissector(buffer, packet, tree)
    local kind = buffer(3, 1):bitfield(4, 4)
    packet.cols.protocol = "BCFS"
    local branch = tree:add(bcfs, buffer())
    branch:add(f.magic, buffer(0, 3))
    branch:add(f.version, buffer(3, 1))
    branch:add(f.kind, buffer(3, 1))
    if buffer:len() < 12 then
        branch:add_proto_expert_info(short)
        return buffer:len()
    end
    branch:add(f.label, buffer(4, 4))
    branch:add(f.level, buffer(8, 2))
    branch:add(f.hops, buffer(10, 1))
    branch:add(f.family, buffer(11, 1))
    local family = buffer(11, 1):uint()
    local header_bytes = HEADER_BYTES[family]
    if header_bytes == nil then
        branch:add_proto_expert_info(strange)
        return buffer:len()
    end
    if buffer:len() < header_bytes then
        branch:add_proto_expert_info(short)
        return buffer:len()
    end
    branch:add(f.port, buffer(12, 2))
    branch:add(f.any, buffer(15, 1))
    branch:add(f.loss, buffer(15, 1))
    branch:add(f.renewal, buffer(15, 1))
    branch:add(family == 4 and f.ipv4 or f.ipv6, buffer(16, header_bytes - 16))
    packet.cols.info = string.format("%s, label 0x%08x, level %d", KINDS[kind], buffer(4, 4):uint(), buffer(8, 2):uint())
    if buffer:len() > header_bytes then
        local body = buffer(header_bytes)
        branch:add(f.body, body)
        if kind == 1 and body:len() ~= 16 then branch:add_proto_expert_info(full) end
        if kind ~= 2 and body:len() >= 8 then branch:add(f.challenge, body(0, 8)) end
        if kind == 0 and body:len() >= 16 then
            branch:add(f.word, body(8, 4))
            branch:add(f.place, body(12, 4))
        end
        if kind == 0 and body:len() >= 28 and body(16, 4):uint() > 0 then
            branch:add(f.toi, body(16, 4))
            branch:add(f.sbn, body(20, 4))
            if body(24, 4):uint() > 0 then branch:add(f.esi, body(24, 4), body(24, 4):uint() - 1) end
        end
        -- LCT's version: a packet of a session of files.
        if kind == 2 and body:len() >= 8 and body(0, 1):bitfield(0, 4) == 1 then
            Dissector.get("alc"):call(body:tvb(), packet, tree)
        end
    end
    return buffer:len()
end

bcfs:register_heuristic("udp", function(buffer, packet, tree)
    if not is_ours(buffer) then return false end
    bcfs.dissector(buffer, packet, tree)
    return true
end)
