//! How a plan comes to the children: in a memfd, as its length, its JSON, and the contents of its
//! files as they are. These are most of it, and the agent waits for it.

use std::io::{self, Read as _, Write as _};
use std::os::fd::OwnedFd;

use rustix::fs::{MemfdFlags, SeekFrom};
use serde::{Deserialize, Serialize};

use super::Plan;

#[derive(Serialize, Deserialize)]
struct Passed {
    /// Without the contents of its files.
    plan: Plan,
    /// How long each of them is.
    lengths: Vec<usize>,
}

/// Writes it to a descriptor that is to be sent.
pub(crate) fn write(plan: &Plan) -> io::Result<OwnedFd> {
    let mut bare = plan.clone();
    let contents: Vec<Vec<u8>> = bare
        .files
        .iter_mut()
        .map(|file| std::mem::take(&mut file.content))
        .collect();
    let head = serde_json::to_vec(&Passed {
        plan: bare,
        lengths: contents.iter().map(Vec::len).collect(),
    })?;
    let memory = rustix::fs::memfd_create("kairos-plan", MemfdFlags::CLOEXEC)?;
    let mut file = std::fs::File::from(memory);
    file.write_all(&(head.len() as u64).to_le_bytes())?;
    file.write_all(&head)?;
    for content in &contents {
        file.write_all(content)?;
    }
    rustix::fs::seek(&file, SeekFrom::Start(0))?;
    Ok(file.into())
}

/// Reads what [`write`] wrote.
pub(crate) fn read(fds: Vec<OwnedFd>) -> io::Result<Plan> {
    let memory = fds.into_iter().next();
    let memory = memory.ok_or_else(|| io::Error::other("it did not come along"))?;
    let mut file = std::fs::File::from(memory);
    let mut length = [0; 8];
    file.read_exact(&mut length)?;
    let length = usize::try_from(u64::from_le_bytes(length)).map_err(io::Error::other)?;
    let mut rest = Vec::new();
    file.read_to_end(&mut rest)?;
    let short = || io::Error::from(io::ErrorKind::UnexpectedEof);
    let (head, mut rest) = rest.split_at_checked(length).ok_or_else(short)?;
    let Passed { mut plan, lengths } = serde_json::from_slice(head)?;
    for (file, length) in plan.files.iter_mut().zip(lengths) {
        let (content, others) = rest.split_at_checked(length).ok_or_else(short)?;
        file.content = content.to_vec();
        rest = others;
    }
    Ok(plan)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::SyntheticFile;

    #[test]
    fn a_plan_arrives_as_it_was_sent() {
        let mut plan = Plan::new(vec!["sh".into()], "/work".into(), "/home/u".into());
        plan.files = vec![
            SyntheticFile::read_only("/etc/a", "text"),
            SyntheticFile::read_only("/etc/b", ""),
            SyntheticFile::seed("/home/u/c", vec![0, 255, 10]),
        ];
        let sent = write(&plan).unwrap();
        assert_eq!(read(vec![sent]).unwrap(), plan);
        assert!(read(Vec::new()).is_err());
    }
}
