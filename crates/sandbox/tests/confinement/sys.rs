//! Datagrams with the address they were sent to, for the stand-in name server.
#![allow(unsafe_code, reason = "packet information has no safe wrapper")]

use std::io;
use std::mem::{size_of, zeroed};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsRawFd, BorrowedFd};

/// Receives one datagram, answers `answer` from the address it was sent to, returns that address.
pub(crate) fn answer(
    socket: BorrowedFd<'_>,
    answer: impl FnOnce(&[u8]) -> Vec<u8>,
) -> io::Result<IpAddr> {
    let mut data = [0u8; 2048];
    let mut control = [0u64; 32];
    // SAFETY: all-zero bytes are a valid value of these plain C structures; every pointer put
    // into `message` is to a local that outlives both calls, with its true length; the control
    // buffer is aligned for cmsghdr, and the CMSG macros stay within `msg_controllen`.
    unsafe {
        let mut peer: libc::sockaddr_storage = zeroed();
        let mut part = libc::iovec {
            iov_base: data.as_mut_ptr().cast(),
            iov_len: data.len(),
        };
        let mut message: libc::msghdr = zeroed();
        message.msg_name = (&raw mut peer).cast();
        message.msg_namelen = size_of::<libc::sockaddr_storage>() as u32;
        message.msg_iov = &raw mut part;
        message.msg_iovlen = 1;
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = size_of_val(&control);
        let length = libc::recvmsg(socket.as_raw_fd(), &raw mut message, 0);
        if length < 0 {
            return Err(io::Error::last_os_error());
        }
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        if header.is_null() {
            return Err(io::Error::other("no packet information"));
        }
        let to = if (*header).cmsg_level == libc::IPPROTO_IP {
            let info: *mut libc::in_pktinfo = libc::CMSG_DATA(header).cast();
            (*info).ipi_ifindex = 0;
            (*info).ipi_spec_dst = (*info).ipi_addr;
            IpAddr::V4(Ipv4Addr::from(u32::from_be((*info).ipi_addr.s_addr)))
        } else {
            let info: *const libc::in6_pktinfo = libc::CMSG_DATA(header).cast();
            IpAddr::V6(Ipv6Addr::from((*info).ipi6_addr.s6_addr))
        };
        let mut reply = answer(&data[..length as usize]);
        let mut part = libc::iovec {
            iov_base: reply.as_mut_ptr().cast(),
            iov_len: reply.len(),
        };
        message.msg_iov = &raw mut part;
        if libc::sendmsg(socket.as_raw_fd(), &raw const message, 0) < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(to)
    }
}
