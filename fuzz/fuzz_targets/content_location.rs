//! A Content-Location that is taken stays below the receiver's folder, and means the same when written again.
#![no_main]
use headwater_proto::delivery::{COMPONENT_BYTES_MAX, PATH_BYTES_MAX, RESERVED_PREFIX, RelativePath};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|location: &str| {
    let Ok(path) = RelativePath::from_content_location(location) else { return };
    assert!(path.as_str().len() <= PATH_BYTES_MAX);
    for component in path.as_str().split('/') {
        assert!(!matches!(component, "" | "." | ".."));
        assert!(component.len() <= COMPONENT_BYTES_MAX);
        assert!(!component.starts_with(RESERVED_PREFIX));
        assert!(!component.contains(|c: char| c.is_control() || matches!(c, '\\' | ':')));
    }
    let below = std::path::Path::new(path.as_str());
    assert!(below.components().all(|part| matches!(part, std::path::Component::Normal(_))));
    assert_eq!(RelativePath::from_content_location(&path.to_content_location()), Ok(path));
});
