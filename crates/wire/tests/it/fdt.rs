//! FDT instances: as we write them, as others do, and as nobody should.
use headwater_wire::Fti;
use headwater_wire::fdt::{
    ATTRIBUTE_LEN_MAX, BLOCK_DIGESTS_MAX, DEPTH_MAX, DOCUMENT_LEN_MAX, ENTRIES_MAX, Entry, FILES_MAX,
    FOLDERS_MAX, FdtError, File, FileTime, Headwater, Instance, OtiAttributes, Segment, Withdrawal,
    XATTRS_LEN_MAX,
};

fn parse(xml: &str) -> Result<Instance, FdtError> {
    Instance::parse(xml.as_bytes())
}

/// A root around `files`, which need no prefix declarations of their own.
fn table(files: &str) -> String {
    format!(
        r#"<FDT-Instance xmlns="urn:ietf:params:xml:ns:fdt" xmlns:hw="urn:headwater:fdt:1" Expires="9">{files}</FDT-Instance>"#
    )
}

fn parse_file(attributes: &str) -> Result<File, FdtError> {
    let mut instance = parse(&table(&format!(r#"<File TOI="1" Content-Location="a" {attributes}/>"#)))?;
    Ok(instance.files.remove(0))
}

/// The attribute that is refused.
fn refused(attributes: &str) -> String {
    match parse_file(attributes) {
        Err(FdtError::Attribute { attribute, .. }) => attribute,
        other => panic!("{attributes}: {other:?}"),
    }
}

const RAPTORQ: Fti =
    Fti::RaptorQ { transfer_length: 100_000, symbol_size: 1408, blocks: 2, sub_blocks: 1, alignment: 8 };

fn ours() -> (Instance, &'static str) {
    let headwater = Headwater {
        digest: Some([0xA5; 32]),
        block_digests: vec![[0; 16], [0xFF; 16]],
        segment: Some(Segment {
            index: 1,
            count: 3,
            offset: 100_000,
            file: "a & b".into(),
            file_length: 250_000,
        }),
        mode: Some(0o644),
        modified: FileTime::new(1_764_000_000, 123_456_789),
        ..Headwater::default()
    };
    let file = File {
        toi: 7,
        content_location: "a%20&%20b".into(),
        content_length: Some(100_000),
        transfer_length: Some(100_000),
        content_md5: Some([0; 16]),
        oti: OtiAttributes::from(&RAPTORQ),
        headwater,
        ..File::default()
    };
    let instance =
        Instance { expires: 4_000_000_000, complete: true, files: vec![file], ..Instance::default() };
    let xml = r#"<?xml version="1.0" encoding="UTF-8"?>
<FDT-Instance xmlns="urn:ietf:params:xml:ns:fdt" xmlns:hw="urn:headwater:fdt:1" Expires="4000000000" Complete="true">
  <File TOI="7" Content-Location="a%20&amp;%20b" Content-Length="100000" Transfer-Length="100000" Content-MD5="AAAAAAAAAAAAAAAAAAAAAA==" FEC-OTI-FEC-Encoding-ID="6" FEC-OTI-Encoding-Symbol-Length="1408" FEC-OTI-Scheme-Specific-Info="AgABCA==" hw:Digest="a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5" hw:Block-Digests="AAAAAAAAAAAAAAAAAAAAAP////////////////////8=" hw:Segment="1" hw:Segments="3" hw:Offset="100000" hw:File="a &amp; b" hw:File-Length="250000" hw:Mode="0644" hw:Mtime="1764000000.123456789"/>
</FDT-Instance>
"#;
    (instance, xml)
}

#[test]
fn the_next_key_is_an_attribute_of_the_root() {
    let root = |key: &str| {
        let xml =
            format!(r#"<FDT-Instance xmlns:hw="urn:headwater:fdt:1" Expires="9" hw:Next-Key="{key}"/>"#);
        parse(&xml).map(|instance| instance.next_key)
    };
    assert_eq!(root(&"0A".repeat(32)), Ok(Some([10; 32])));
    assert!(root(&"0a".repeat(31)).is_err() && root("key").is_err());
    let instance = Instance { expires: 9, next_key: Some([10; 32]), ..Instance::default() };
    let xml = instance.to_xml();
    assert!(xml.contains(&format!(r#" hw:Next-Key="{}""#, "0a".repeat(32))), "{xml}");
    assert_eq!(parse(&xml), Ok(instance));
}

#[test]
fn a_congestion_control_is_told_by_the_root() {
    let control = "m2c packet-bytes=1424 base-rate=120000";
    let root = |control: &str| {
        let xml = format!(r#"<FDT-Instance xmlns:hw="urn:headwater:fdt:1" Expires="9" {control}/>"#);
        parse(&xml).map(|instance| instance.control.map(|control| control.to_string()))
    };
    assert_eq!(root(""), Ok(None));
    assert_eq!(root(&format!(r#"hw:Congestion-Control=" {control} ""#)), Ok(Some(control.into())));
    // Without the namespace it is somebody else's attribute.
    assert_eq!(root(&format!(r#"Congestion-Control="{control}""#)), Ok(None));
    for wrong in ["", "M2C", "m2c rate", "m2c rate=-1", "m2c a=1 a=1"] {
        let refusal = root(&format!(r#"hw:Congestion-Control="{wrong}""#));
        assert!(matches!(refusal, Err(FdtError::Attribute { .. })), "{wrong}: {refusal:?}");
    }
    let instance = Instance { expires: 9, control: Some(control.parse().unwrap()), ..Instance::default() };
    assert_eq!(parse(&instance.to_xml()).as_ref(), Ok(&instance));
}

#[test]
fn entries_of_metadata_are_kept_as_written_and_bad_ones_spoil_nothing() {
    let entry = Entry {
        content_location: "a%20b".into(),
        kind: "link".into(),
        target: Some("../c".into()),
        modified: Some("1.000000005".into()),
        ..Entry::default()
    };
    let (preserve, owner) = (Some("modes owner".to_owned()), Some("0:0".to_owned()));
    let instance = Instance { expires: 9, preserve, owner, entries: vec![entry], ..Instance::default() };
    let xml = r#"<?xml version="1.0" encoding="UTF-8"?>
<FDT-Instance xmlns="urn:ietf:params:xml:ns:fdt" xmlns:hw="urn:headwater:fdt:1" Expires="9" hw:Preserve="modes owner" hw:Owner="0:0">
  <hw:Entry Content-Location="a%20b" Kind="link" Target="../c" Mtime="1.000000005"/>
</FDT-Instance>
"#;
    assert_eq!(instance.to_xml(), xml);
    assert_eq!(parse(xml).as_ref(), Ok(&instance));
    let of = |entries: &str| {
        let root = r#"<FDT-Instance xmlns:hw="urn:headwater:fdt:1" Expires="9">"#;
        parse(&format!("{root}{entries}</FDT-Instance>")).map(|instance| instance.entries)
    };
    let long = "x".repeat(XATTRS_LEN_MAX + 1);
    let entries =
        of(&format!("<hw:Entry Content-Location='a' Xattrs='{long}' Mode='{long}' Unknown='1'/><Entry/>"));
    let entries = entries.unwrap();
    assert_eq!(entries.len(), 1, "an element of another namespace is somebody else's");
    assert_eq!((entries[0].xattrs.as_deref(), entries[0].mode.as_deref()), (Some(""), Some("")));
    let many = "<hw:Entry/>".repeat(ENTRIES_MAX + 1);
    assert_eq!(of(&many), Err(FdtError::TooMany { what: "entries", max: ENTRIES_MAX }));
}

#[test]
fn folders_are_elements_of_our_own_after_the_files() {
    let folders = vec!["a%20b/c".to_owned(), "d&e".to_owned()];
    let instance = Instance { expires: 9, folders, ..Instance::default() };
    let xml = r#"<?xml version="1.0" encoding="UTF-8"?>
<FDT-Instance xmlns="urn:ietf:params:xml:ns:fdt" xmlns:hw="urn:headwater:fdt:1" Expires="9">
  <hw:Folder Content-Location="a%20b/c"/>
  <hw:Folder Content-Location="d&amp;e"/>
</FDT-Instance>
"#;
    assert_eq!(instance.to_xml(), xml);
    assert_eq!(parse(xml).as_ref(), Ok(&instance));
    // Without the namespace, or deeper, it is somebody else's element.
    for foreign in ["<Folder Content-Location='a'/>", "<x><hw:Folder Content-Location='a'/></x>"] {
        let xml =
            format!(r#"<FDT-Instance xmlns:hw="urn:headwater:fdt:1" Expires="9">{foreign}</FDT-Instance>"#);
        assert_eq!(parse(&xml).map(|instance| instance.folders), Ok(Vec::new()));
    }
    let many = |count| {
        let folders = "<hw:Folder Content-Location='a'/>".repeat(count);
        format!(r#"<FDT-Instance xmlns:hw="urn:headwater:fdt:1" Expires="9">{folders}</FDT-Instance>"#)
    };
    assert_eq!(parse(&many(FOLDERS_MAX)).map(|instance| instance.folders.len()), Ok(FOLDERS_MAX));
    let refused = parse(&many(FOLDERS_MAX + 1));
    assert_eq!(refused, Err(FdtError::TooMany { what: "folders", max: FOLDERS_MAX }));
    let nameless = r#"<FDT-Instance xmlns:hw="urn:headwater:fdt:1" Expires="9"><hw:Folder/></FDT-Instance>"#;
    assert_eq!(parse(nameless), Err(FdtError::Missing("Content-Location")));
}

#[test]
fn our_own_form_both_ways() {
    let (instance, xml) = ours();
    assert_eq!(instance.to_xml(), xml);
    assert_eq!(parse(xml).as_ref(), Ok(&instance));
    assert_eq!(instance.fti(&instance.files[0]), Ok(RAPTORQ));
}

/// What the `flute` crate 1.11.7 sent for two objects of 100 bytes; one MBMS namespace stands for eight.
const FLUTE_CRATE: &str = r#"<?xml version="1.0" encoding="UTF-8"?><FDT-Instance xmlns="urn:IETF:metadata:2005:FLUTE:FDT" xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" xmlns:mbms2008="urn:3GPP:metadata:2008:MBMS:FLUTE:FDT_ext" xmlns:sv="urn:3gpp:metadata:2009:MBMS:schemaVersion" Expires="3908992400" FEC-OTI-FEC-Encoding-ID="0" FEC-OTI-FEC-Instance-ID="0" FEC-OTI-Maximum-Source-Block-Length="64" FEC-OTI-Encoding-Symbol-Length="1400" FEC-OTI-Max-Number-of-Encoding-Symbols="64" mbms2008:FullFDT="true"><File Content-Location="file:///a0&amp;b.txt" TOI="1" Content-Length="100" Transfer-Length="100" Content-Type="text/plain" Content-MD5="es7dGoSkz8tuehYAMkKUXg==" FEC-OTI-FEC-Encoding-ID="6" FEC-OTI-FEC-Instance-ID="0" FEC-OTI-Maximum-Source-Block-Length="100" FEC-OTI-Encoding-Symbol-Length="64" FEC-OTI-Max-Number-of-Encoding-Symbols="102" FEC-OTI-Scheme-Specific-Info="AQABBA=="><sv:delimiter>0</sv:delimiter><sv:delimiter>0</sv:delimiter></File><File Content-Location="file:///a1&amp;b.txt" TOI="2" Content-Length="100" Transfer-Length="100" Content-Type="text/plain" FEC-OTI-FEC-Encoding-ID="5" FEC-OTI-FEC-Instance-ID="0" FEC-OTI-Maximum-Source-Block-Length="60" FEC-OTI-Encoding-Symbol-Length="64" FEC-OTI-Max-Number-of-Encoding-Symbols="64"><sv:delimiter>0</sv:delimiter></File><sv:schemaVersion>4</sv:schemaVersion><sv:delimiter>0</sv:delimiter></FDT-Instance>"#;

#[test]
fn table_of_the_flute_crate() {
    let instance = parse(FLUTE_CRATE).unwrap();
    assert_eq!((instance.expires, instance.complete, instance.files.len()), (3_908_992_400, false, 2));
    let [first, second] = &instance.files[..] else { panic!("two files") };
    assert_eq!((first.toi, first.content_location.as_str()), (1, "file:///a0&b.txt"));
    assert_eq!(first.content_type.as_deref(), Some("text/plain"));
    // md5 of the bytes 0 to 99
    assert_eq!(first.content_md5, Some(0x7ace_dd1a_84a4_cfcb_6e7a_1600_3242_945e_u128.to_be_bytes()));
    assert_eq!(
        instance.fti(first),
        Ok(Fti::RaptorQ { transfer_length: 100, symbol_size: 64, blocks: 1, sub_blocks: 1, alignment: 4 })
    );
    assert_eq!(
        instance.fti(second),
        Ok(Fti::ReedSolomon { transfer_length: 100, symbol_size: 64, max_block: 60, max_symbols: 64 })
    );
}

#[test]
fn every_cut_of_a_table_is_refused() {
    for xml in [ours().1.trim_end(), FLUTE_CRATE] {
        for len in 0..xml.len() {
            assert!(parse(&xml[..len]).is_err(), "{}", &xml[..len]);
        }
    }
}

#[test]
fn file_attributes_override_the_root_one_by_one() {
    let xml = r#"<FDT-Instance xmlns="urn:ietf:params:xml:ns:fdt" Expires="1" FEC-OTI-FEC-Encoding-ID="0"
        FEC-OTI-Encoding-Symbol-Length="1000" FEC-OTI-Maximum-Source-Block-Length="50">
        <File TOI="1" Content-Location="a" Content-Length="5"/>
        <File TOI="2" Content-Location="b" Content-Length="5" Transfer-Length="4" Content-Encoding="gzip"
              FEC-OTI-Encoding-Symbol-Length="500"/>
        <File TOI="3" Content-Location="c" Content-Length="5" Content-Encoding="gzip"/>
        <File TOI="4" Content-Location="d" Content-Length="5" FEC-OTI-FEC-Encoding-ID="5"/>
        <File TOI="5" Content-Location="e" Content-Length="5" FEC-OTI-FEC-Encoding-ID="129"/>
        <File TOI="6" Content-Location="f" Content-Length="5" FEC-OTI-Encoding-Symbol-Length="70000"/>
        <File TOI="7" Content-Location="g" Content-Length="5" FEC-OTI-Encoding-Symbol-Length="0"/>
    </FDT-Instance>"#;
    let instance = parse(xml).unwrap();
    let fti = |index: usize| instance.fti(&instance.files[index]);
    assert_eq!(fti(0), Ok(Fti::NoCode { transfer_length: 5, symbol_size: 1000, max_block: 50 }));
    assert_eq!(fti(1), Ok(Fti::NoCode { transfer_length: 4, symbol_size: 500, max_block: 50 }));
    // Compressed, so its length on the wire is not its content length.
    assert_eq!(fti(2), Err(FdtError::Missing("Transfer-Length")));
    assert_eq!(fti(3), Err(FdtError::Missing("FEC-OTI-Max-Number-of-Encoding-Symbols")));
    assert_eq!(fti(4), Err(FdtError::UnknownScheme(129)));
    assert!(matches!(fti(5), Err(FdtError::Attribute { .. })));
    assert!(matches!(fti(6), Err(FdtError::Fti(_))));
    let compressed = Instance { content_encoding: Some("gzip".into()), ..instance.clone() };
    assert_eq!(compressed.fti(&instance.files[0]), Err(FdtError::Missing("Transfer-Length")));
    let bare = Instance::default();
    let file = File { transfer_length: Some(1), ..File::default() };
    assert_eq!(bare.fti(&file), Err(FdtError::Missing("FEC-OTI-FEC-Encoding-ID")));
}

#[test]
fn prefixes_are_free_and_the_rest_is_skipped() {
    let xml = r#"<?xml version="1.0"?><!-- note -->
        <f:FDT-Instance xmlns:f="urn:ietf:params:xml:ns:fdt" xmlns:x="urn:x" xmlns:own="urn:headwater:fdt:1"
            Expires=" 5 " Complete="1" x:Expires="6" Colour="blue">
          text &amp; more
          <x:File TOI="8" Content-Location="not ours"/>
          <f:Group><f:File TOI="9" Content-Location="too deep"/></f:Group>
          <f:File Content-Location='a' TOI='7' own:Mode="755" x:Mode="1" own:Future="2"><f:File TOI="9"/></f:File>
        </f:FDT-Instance>"#;
    let instance = parse(xml).unwrap();
    assert_eq!((instance.expires, instance.complete), (5, true));
    let [file] = &instance.files[..] else { panic!("one file") };
    assert_eq!((file.toi, file.headwater.mode), (7, Some(0o755)));
}

#[test]
fn complete_takes_every_form_of_a_boolean() {
    let complete = |value: &str| {
        parse(&format!(r#"<FDT-Instance Expires="1" Complete="{value}"/>"#)).map(|instance| instance.complete)
    };
    assert_eq!([complete("1"), complete("true")], [Ok(true), Ok(true)]);
    assert_eq!([complete("0"), complete("false")], [Ok(false), Ok(false)]);
    assert!(matches!(complete("yes"), Err(FdtError::Attribute { .. })));
}

#[test]
fn entities_are_the_predefined_ones() {
    let location = |value: &str| {
        let xml = table(&format!(r#"<File TOI="1" Content-Location="{value}"/>"#));
        parse(&xml).map(|mut instance| instance.files.remove(0).content_location)
    };
    assert_eq!(location("&lt;&gt;&amp;&quot;&apos;&#65;&#x42;").as_deref(), Ok("<>&\"'AB"));
    assert!(matches!(location("&nbsp;"), Err(FdtError::Xml { .. })));
    assert!(matches!(location("&#1;"), Err(FdtError::Attribute { .. })));
    assert!(matches!(location("&#0;"), Err(FdtError::Xml { .. })));
}

#[test]
fn document_types_are_refused() {
    let xml = format!(r#"<!DOCTYPE FDT-Instance [<!ENTITY a "b">]>{}"#, table(""));
    assert_eq!(parse(&xml), Err(FdtError::DocType));
}

#[test]
fn other_documents_are_refused() {
    let root = |name: &str| Err(FdtError::Root(name.into()));
    assert_eq!(parse("<html/>"), root("html"));
    assert_eq!(parse(r#"<FDT-Instance xmlns="urn:other" Expires="1"/>"#), root("FDT-Instance"));
    assert_eq!(parse(r#"<FDT-Instance Expires="1"/><FDT-Instance Expires="1"/>"#), root("FDT-Instance"));
    assert_eq!(parse(""), Err(FdtError::Truncated));
    assert_eq!(
        parse(r#"<FDT-Instance Expires="1"><File"#).map_err(|error| matches!(error, FdtError::Xml { .. })),
        Err(true)
    );
    assert_eq!(parse(r#"<FDT-Instance Expires="1">"#), Err(FdtError::Truncated));
    assert!(matches!(parse(r#"<FDT-Instance Expires="1"></File>"#), Err(FdtError::Xml { .. })));
    assert!(matches!(parse("</FDT-Instance>"), Err(FdtError::Xml { .. })));
    assert_eq!(Instance::parse(b"<FDT-Instance Expires='1' Content-Type='\xFF'/>"), Err(FdtError::Encoding));
}

#[test]
fn required_attributes_are_required() {
    assert_eq!(parse("<FDT-Instance/>"), Err(FdtError::Missing("Expires")));
    assert_eq!(parse(&table(r#"<File Content-Location="a"/>"#)), Err(FdtError::Missing("TOI")));
    assert_eq!(parse(&table(r#"<File TOI="1"/>"#)), Err(FdtError::Missing("Content-Location")));
}

#[test]
fn numbers_stay_in_their_range() {
    let toi = |toi: &str| parse(&table(&format!(r#"<File TOI="{toi}" Content-Location="a"/>"#))).map(|_| ());
    assert_eq!(toi("5192296858534827628530496329220095"), Ok(()));
    for bad in
        ["0", "-1", "x", "", "5192296858534827628530496329220096", "340282366920938463463374607431768211456"]
    {
        assert!(matches!(toi(bad), Err(FdtError::Attribute { .. })), "{bad}");
    }
    assert!(matches!(parse(r#"<FDT-Instance Expires="4294967296"/>"#), Err(FdtError::Attribute { .. })));
    assert_eq!(refused(r#"Content-Length="18446744073709551616""#), "Content-Length");
    assert_eq!(refused(r#"FEC-OTI-FEC-Encoding-ID="256""#), "FEC-OTI-FEC-Encoding-ID");
}

#[test]
fn each_toi_once() {
    let xml = table(r#"<File TOI="1" Content-Location="a"/><File TOI="01" Content-Location="b"/>"#);
    assert_eq!(parse(&xml), Err(FdtError::DuplicateToi(1)));
}

#[test]
fn digests_have_their_lengths() {
    assert_eq!(refused(r#"Content-MD5="AAAA""#), "Content-MD5");
    assert_eq!(refused(r#"Content-MD5="*""#), "Content-MD5");
    assert_eq!(refused(r#"hw:Digest="abc""#), "hw:Digest");
    assert_eq!(refused(&format!(r#"hw:Digest="{}""#, "0".repeat(62))), "hw:Digest");
    assert_eq!(refused(&format!(r#"hw:Digest="{}é""#, "0".repeat(62))), "hw:Digest");
    assert_eq!(refused(r#"hw:Block-Digests="AAAA""#), "hw:Block-Digests");
    let upper = parse_file(&format!(r#"hw:Digest="{}""#, "AB".repeat(32))).unwrap();
    assert_eq!(upper.headwater.digest, Some([0xAB; 32]));
}

#[test]
fn digests_follow_and_files_are_withdrawn_both_ways() {
    let written = |headwater: Headwater| {
        let file = File { toi: 1, content_location: "a".into(), headwater, ..File::default() };
        let instance = Instance { expires: 9, files: vec![file], ..Instance::default() };
        let xml = instance.to_xml();
        assert_eq!(parse(&xml).as_ref(), Ok(&instance));
        xml
    };
    let bundle = Headwater { is_bundle: true, ..Headwater::default() };
    assert!(written(bundle).contains(r#" hw:Bundle="true"/>"#));
    assert!(parse_file(r#"hw:Bundle="1""#).unwrap().headwater.is_bundle);
    let follow = Headwater { digests_follow: true, ..Headwater::default() };
    assert!(written(follow).contains(r#" hw:Digests-Follow="true"/>"#));
    for (reason, text) in [
        (Withdrawal::Changed, "changed"),
        (Withdrawal::Unreadable, "unreadable"),
        (Withdrawal::Other, "other"),
    ] {
        let withdrawn = Headwater { withdrawn: Some(reason), ..Headwater::default() };
        assert!(written(withdrawn).contains(&format!(r#" hw:Withdrawn="{text}"/>"#)));
    }
    let unknown = parse_file(r#"hw:Withdrawn="by-decree" hw:Digests-Follow="0""#).unwrap().headwater;
    assert_eq!((unknown.withdrawn, unknown.digests_follow), (Some(Withdrawal::Other), false));
    assert_eq!(refused(r#"hw:Digests-Follow="maybe""#), "hw:Digests-Follow");
}

#[test]
fn modes_are_permission_bits() {
    assert_eq!(parse_file(r#"hw:Mode="7777""#).unwrap().headwater.mode, Some(0o7777));
    let time = parse_file(r#"hw:Mtime=" -1.500000000 ""#).unwrap().headwater.modified;
    assert_eq!(time, FileTime::new(-2, 500_000_000));
    for bad in ["", "5", "1.5", "+1.000000000", "x.000000000"] {
        assert_eq!(refused(&format!(r#"hw:Mtime="{bad}""#)), "hw:Mtime");
    }
    for bad in ["10000", "8", "", "-1"] {
        assert_eq!(refused(&format!(r#"hw:Mode="{bad}""#)), "hw:Mode");
    }
}

#[test]
fn segments_are_whole_and_within_their_file() {
    let segment = |index: u32, offset: u64, length: u64| {
        parse_file(&format!(
            r#"Content-Length="{length}" hw:Segment="{index}" hw:Segments="2" hw:Offset="{offset}" hw:File="f" hw:File-Length="10""#
        ))
    };
    let expected = Segment { index: 1, count: 2, offset: 6, file: "f".into(), file_length: 10 };
    assert_eq!(segment(1, 6, 4).unwrap().headwater.segment, Some(expected));
    for (index, offset, length) in [(2, 0, 1), (1, 6, 5), (0, 11, 0), (0, 1, u64::MAX)] {
        assert!(
            matches!(segment(index, offset, length), Err(FdtError::Segment { .. })),
            "{index} {offset} {length}"
        );
    }
    assert_eq!(parse_file(r#"hw:Segment="0""#), Err(FdtError::Missing("hw:Segments")));
    assert_eq!(parse_file(r#"hw:File-Length="0""#), Err(FdtError::Missing("hw:Segment")));
}

#[test]
fn bounds_hold() {
    let too_many = |what, max| FdtError::TooMany { what, max };
    let long = format!(r#"Content-Type="{}""#, "a".repeat(ATTRIBUTE_LEN_MAX + 1));
    assert_eq!(parse_file(&long), Err(too_many("bytes in an attribute", ATTRIBUTE_LEN_MAX)));

    let mut file = File { toi: 1, ..File::default() };
    file.headwater.block_digests = vec![[1; 16]; BLOCK_DIGESTS_MAX];
    let mut instance = Instance { files: vec![file], ..Instance::default() };
    assert_eq!(parse(&instance.to_xml()).as_ref(), Ok(&instance));
    instance.files[0].headwater.block_digests = vec![[1; 16]; BLOCK_DIGESTS_MAX + 1];
    assert!(matches!(
        parse(&instance.to_xml()),
        Err(FdtError::TooMany { what: "bytes in an attribute", .. })
    ));

    let files = |count: u128| (1..=count).map(|toi| File { toi, ..File::default() }).collect();
    let most = Instance { files: files(FILES_MAX as u128), ..Instance::default() };
    assert_eq!(parse(&most.to_xml()).map(|instance| instance.files.len()), Ok(FILES_MAX));
    let more = Instance { files: files(FILES_MAX as u128 + 1), ..Instance::default() };
    assert_eq!(parse(&more.to_xml()), Err(too_many("files", FILES_MAX)));

    let nested = |depth: usize| table(&format!("{}{}", "<a>".repeat(depth), "</a>".repeat(depth)));
    assert!(parse(&nested(DEPTH_MAX - 1)).is_ok());
    assert_eq!(parse(&nested(DEPTH_MAX)), Err(too_many("nested elements", DEPTH_MAX)));

    let padded = |len: usize| table(&" ".repeat(len - table("").len()));
    assert!(parse(&padded(DOCUMENT_LEN_MAX)).is_ok());
    assert_eq!(parse(&padded(DOCUMENT_LEN_MAX + 1)), Err(too_many("bytes", DOCUMENT_LEN_MAX)));
}

#[test]
fn errors_quote_little_of_the_document() {
    let name = "x".repeat(100_000);
    for xml in [
        format!("<{name}/>"),
        format!("<FDT-Instance Expires='{}'/>", &name[..8000]),
        format!("<a></{name}>"),
    ] {
        assert!(parse(&xml).unwrap_err().to_string().len() < 300);
    }
}

#[test]
fn characters_that_xml_cannot_hold_are_replaced() {
    let file = File { toi: 1, content_location: "a\u{1}b\tc\nd\re".into(), ..File::default() };
    let instance = Instance { files: vec![file], ..Instance::default() };
    let parsed = parse(&instance.to_xml()).unwrap();
    assert_eq!(parsed.files[0].content_location, "a\u{FFFD}b\tc\nd\re");
}

#[test]
fn servers_for_repair_are_elements_of_3gpp() {
    let file = File {
        toi: 1,
        content_location: "a".into(),
        alternate_locations: vec!["x/a?b&c".into()],
        etag: Some("\"t\"".into()),
        ..File::default()
    };
    let instance = Instance {
        expires: 9,
        base_urls: vec!["http://h/f/".into(), "http://[2001:db8::1]:7280/".into()],
        peer_urls: vec!["http://192.0.2.7:7280/files/".into()],
        repair_offset: Some(3),
        repair_random: Some(10),
        files: vec![file],
        ..Instance::default()
    };
    let xml = r#"<?xml version="1.0" encoding="UTF-8"?>
<FDT-Instance xmlns="urn:ietf:params:xml:ns:fdt" xmlns:mbms2012="urn:3GPP:metadata:2012:MBMS:FLUTE:FDT" xmlns:hw="urn:headwater:fdt:1" Expires="9" hw:Repair-Offset-Time="3" hw:Repair-Random-Time="10">
  <File TOI="1" Content-Location="a" mbms2012:File-ETag="&quot;t&quot;"><mbms2012:Alternate-Content-Location-1>x/a?b&amp;c</mbms2012:Alternate-Content-Location-1></File>
  <mbms2012:Base-URL-1>http://h/f/</mbms2012:Base-URL-1>
  <mbms2012:Base-URL-1>http://[2001:db8::1]:7280/</mbms2012:Base-URL-1>
  <mbms2012:Base-URL-2>http://192.0.2.7:7280/files/</mbms2012:Base-URL-2>
</FDT-Instance>
"#;
    assert_eq!(instance.to_xml(), xml);
    assert_eq!(parse(xml).unwrap(), instance);
}

#[test]
fn urls_of_other_places_and_beyond_the_bounds_are_skipped_or_refused() {
    let root = |content: &str| {
        parse(&format!(
            r#"<FDT-Instance xmlns:m="urn:3GPP:metadata:2012:MBMS:FLUTE:FDT" xmlns:o="urn:o" Expires="9">{content}</FDT-Instance>"#
        ))
    };
    let url = |url: &str| format!("<m:Base-URL-1>{url}</m:Base-URL-1>");
    let many = root(&url("http://h/").repeat(9)).unwrap();
    assert_eq!(many.base_urls, vec!["http://h/"; headwater_wire::fdt::URLS_MAX]);
    let peers = root(&url("http://h/").replace("URL-1", "URL-2").repeat(9)).unwrap();
    assert_eq!(peers.peer_urls, vec!["http://h/"; headwater_wire::fdt::PEERS_MAX]);
    assert!(peers.base_urls.is_empty());
    for other in [
        "<o:Base-URL-1>http://h/</o:Base-URL-1>",
        "<Base-URL-1>http://h/</Base-URL-1>",
        "<o:x><m:Base-URL-1>http://h/</m:Base-URL-1></o:x>",
        "<m:Base-URL-1/>",
        "<m:Base-URL-1> </m:Base-URL-1>",
        r#"<File TOI="1" Content-Location="a"/><m:Alternate-Content-Location-1>x</m:Alternate-Content-Location-1>"#,
    ] {
        let instance = root(other).unwrap();
        assert!(instance.base_urls.is_empty(), "{other}");
        assert!(instance.files.iter().all(|file| file.alternate_locations.is_empty()), "{other}");
    }
    assert!(root(&url(&"x".repeat(ATTRIBUTE_LEN_MAX))).is_ok());
    assert!(root(&url(&"x".repeat(ATTRIBUTE_LEN_MAX + 1))).is_err());
    assert!(root(&url("http://&evil;/")).is_err());
    assert!(root(&url("http://h\n/")).unwrap().base_urls.is_empty(), "no URL has a line break");
    assert!(root(&url("http://h\u{fffe}/")).is_err(), "no XML has this character");
    let nested = root(&url(" http://<o:x>a</o:x>h/ ")).unwrap();
    assert_eq!(nested.base_urls, ["http://ah/"], "text of an unknown element counts as the URL's");
}
