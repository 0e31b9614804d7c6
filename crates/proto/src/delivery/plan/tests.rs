use super::*;

fn plan(bytes: u64, scheme: Scheme) -> SessionPlan {
    let path = RelativePath::new("big").unwrap();
    let config = PlanConfig { scheme, symbol_size: 1_408, order: Order::Spread { rate: 10_000_000 } };
    SessionPlan::new(vec![FileToSend { path, bytes, mode: None, modified: None }], config).unwrap()
}

#[test]
fn segments_cover_a_large_file_with_at_most_two_block_sizes() {
    let bytes = 3_000_000_000_001;
    let plan = plan(bytes, Scheme::RaptorQ);
    assert!(plan.objects().len() > 1);
    let mut sizes = BTreeSet::new();
    let mut offset = 0;
    for (index, object) in plan.objects().iter().enumerate() {
        assert_eq!(object.offset, offset);
        assert_eq!(
            object.segment,
            (u32::try_from(index).unwrap(), u32::try_from(plan.objects().len()).unwrap())
        );
        offset += object.partition.transfer_length();
        sizes.extend((0..object.partition.blocks()).map(|sbn| object.partition.block(sbn).unwrap().symbols));
    }
    assert_eq!(offset, bytes);
    assert!(sizes.len() <= 2, "{sizes:?}");
}

#[test]
fn small_files_are_one_object() {
    for scheme in [Scheme::RaptorQ, Scheme::ReedSolomon, Scheme::NoCode] {
        for bytes in [0, 1, 1_408, 1_409, 100_000_000] {
            let plan = plan(bytes, scheme);
            assert_eq!(plan.objects().len(), 1);
            assert_eq!(plan.objects()[0].partition.transfer_length(), bytes);
        }
    }
}

#[test]
fn ldpc_takes_a_file_as_one_block_where_memory_allows() {
    for (bytes, blocks, max_block, max_symbols) in [
        (0, 0, 1, 4),
        (1, 1, 1, 4),
        (1_409, 1, 2, 5),
        (3 * 1_408, 1, 3, 6),
        (999 * 1_408, 1, 999, 1_998),
        (5_682 * 1_408, 1, 5_682, 11_364),
        (16_000 * 1_408, 1, 16_000, 32_000),
        (103_740_000, 1, 73_679, 147_358),
        (1 << 30, 10, 76_261, 152_522),
    ] {
        let plan = plan(bytes, Scheme::LdpcTriangle);
        let object = &plan.objects()[0];
        let Fti::LdpcTriangle(ldpc) = object.fti else { panic!("{:?}", object.fti) };
        assert_eq!(
            (object.partition.blocks(), ldpc.max_block, ldpc.max_symbols),
            (blocks, max_block, max_symbols)
        );
        assert_eq!((ldpc.g, ldpc.n1_minus3), (1, 0));
        assert_eq!(object.fti.validate(), Ok(()));
        for sbn in 0..blocks {
            let k = object.partition.block(sbn).unwrap().symbols;
            let n = object.codec.encoding_symbols(k);
            // Of the shortest blocks only one repair symbol says anything.
            assert!(if k <= 3 { n == k + 1 } else { n >= 2 * k }, "k = {k}, n = {n}");
        }
    }
    let path = RelativePath::new("big").unwrap();
    let order = Order::Spread { rate: 10_000_000 };
    let config = PlanConfig { scheme: Scheme::LdpcStaircase, symbol_size: 1_408, order };
    let files = vec![FileToSend { path, bytes: 103_740_000, mode: None, modified: None }];
    let frugal = SessionPlan::within(files.clone(), config, 64 << 20).unwrap();
    assert_eq!(frugal.objects()[0].partition.blocks(), 4);
    // What a sender of little memory can encode decides, and what it has to encode beside.
    let few = |copies: usize, memory: u64| {
        let path = |copy: usize| RelativePath::new(&format!("file{copy}")).unwrap();
        let file = |copy| FileToSend { path: path(copy), bytes: 5_682 * 1_408, mode: None, modified: None };
        let plan = SessionPlan::within((0..copies).map(file).collect(), config, memory).unwrap();
        plan.objects()[0].codec.encoding_symbols(5_682)
    };
    assert_eq!((few(1, 256 << 20), few(3, 256 << 20), few(9, 256 << 20)), (22_728, 13_333, 11_364));
    assert!((11_364..13_000).contains(&few(1, 20 << 20)), "{}", few(1, 20 << 20));
    let window = SessionPlan::new(files, PlanConfig { order: Order::Window, ..config });
    assert!(matches!(window, Err(PlanError::Order(Scheme::LdpcStaircase))));
}

#[test]
fn two_files_of_one_name_are_refused() {
    let file = FileToSend { path: RelativePath::new("a").unwrap(), bytes: 1, mode: None, modified: None };
    let config =
        PlanConfig { scheme: Scheme::NoCode, symbol_size: 64, order: Order::Spread { rate: 10_000_000 } };
    assert!(matches!(SessionPlan::new(vec![file.clone(), file], config), Err(PlanError::SameName(_))));
}
