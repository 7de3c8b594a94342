//! The demo's temporary folder, and the user that the database server runs as in it.

use std::env;
use std::fs::{self, DirBuilder};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::error::DemoError;

/// The longest path of a folder that still has room for a Unix socket (107 bytes on Linux, 103 on macOS) in it.
const LONGEST: usize = 80;

/// A user other than ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct OtherUser {
    pub(super) uid: u32,
    pub(super) gid: u32,
}

/// A folder that only the server's user, and root, can enter. Removed when this is dropped.
#[derive(Debug)]
pub(super) struct Folder {
    path: PathBuf,
    user: Option<OtherUser>,
}

impl Folder {
    /// Makes it: the server's socket and data, the relay's state and both logs go there.
    pub(super) fn new() -> Result<Self, DemoError> {
        let mut refused = None;
        for parent in [env::temp_dir(), PathBuf::from("/tmp"), PathBuf::from("/var/tmp")] {
            match Self::inside(&parent) {
                Ok(Some(folder)) => return Ok(folder),
                Ok(None) => {}
                Err(error @ DemoError::NoServerUser) => return Err(error),
                Err(error) => refused = refused.or(Some(error)),
            }
        }
        Err(refused.unwrap_or(DemoError::NoFolder { limit: LONGEST }))
    }

    /// None: the server could not live there.
    fn inside(parent: &Path) -> Result<Option<Self>, DemoError> {
        let failed = |source| DemoError::Folder {
            parent: parent.to_owned(),
            source,
        };
        // Absolute and without links, as it goes to other processes.
        let parent = parent.canonicalize().map_err(failed)?;
        let path = parent.join(format!("tailpost-demo-{:08x}", rand::random::<u32>()));
        if path.as_os_str().len() > LONGEST {
            return Ok(None);
        }
        DirBuilder::new().mode(0o700).create(&path).map_err(failed)?;
        let mut folder = Self { path, user: None };
        // Whoever owns it is who we are.
        if fs::metadata(&folder.path).map_err(failed)?.uid() == 0 {
            let user = server_user()?;
            if !can_enter(user, &parent) {
                return Ok(None);
            }
            chown(&folder.path, Some(user.uid), Some(user.gid)).map_err(failed)?;
            folder.user = Some(user);
        }
        Ok(Some(folder))
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Whom the database server must run as; None: as we do.
    pub(super) fn server_user(&self) -> Option<OtherUser> {
        self.user
    }

    /// Removes it, and says so if that fails.
    pub(super) fn remove(self) -> Result<(), DemoError> {
        fs::remove_dir_all(&self.path).map_err(|source| DemoError::FolderStays {
            path: self.path.clone(),
            source,
        })
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // After `remove` there is nothing left; on the way out of a failure there is nobody left to tell.
        let _ = fs::remove_dir_all(&self.path);
    }
}

fn server_user() -> Result<OtherUser, DemoError> {
    let known = |name| {
        Some(OtherUser {
            uid: id("-u", name)?,
            gid: id("-g", name)?,
        })
    };
    let mut users = ["postgres", "mysql", "nobody"].into_iter();
    users.find_map(known).ok_or(DemoError::NoServerUser)
}

/// Asked of the program, as users need not be in /etc/passwd.
fn id(which: &str, name: &str) -> Option<u32> {
    let output = Command::new("id")
        .args([which, name])
        .stderr(Stdio::null())
        .output()
        .ok()?;
    String::from_utf8(output.stdout).ok()?.trim().parse().ok()
}

fn can_enter(user: OtherUser, folder: &Path) -> bool {
    folder.ancestors().all(|folder| {
        fs::metadata(folder).is_ok_and(|metadata| {
            let class = if metadata.uid() == user.uid {
                0o100
            } else if metadata.gid() == user.gid {
                0o010
            } else {
                0o001
            };
            metadata.mode() & class != 0
        })
    })
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_closed_parent_keeps_the_user_out() {
        let folder = tempfile::tempdir().expect("a folder");
        let inner = folder.path().join("inner");
        fs::create_dir(&inner).expect("a folder");
        let nobody_we_know = OtherUser {
            uid: 4_000_000,
            gid: 4_000_000,
        };
        fs::set_permissions(folder.path(), Permissions::from_mode(0o711)).expect("permissions");
        fs::set_permissions(&inner, Permissions::from_mode(0o755)).expect("permissions");
        assert!(can_enter(nobody_we_know, &inner));
        fs::set_permissions(folder.path(), Permissions::from_mode(0o700)).expect("permissions");
        assert!(!can_enter(nobody_we_know, &inner));
    }

    #[test]
    fn the_folder_goes_with_its_owner() {
        let folder = Folder::new().expect("a folder");
        let path = folder.path().to_owned();
        fs::write(path.join("file"), "text").expect("a file");
        drop(folder);
        assert!(!path.exists());
    }
}
